// host_tensor.h — HostTensor: a tensor of bytes on the host, as constants of graphs and the
// interpreters have it. As graph.h, it may change with any release.
#pragma once

#include "ir/values/host_tensor.h"
