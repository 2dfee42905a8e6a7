// host_tensor.h — HostTensor: a tensor in host memory. Constants of graphs and the interpreters use
// it. Like graph.h, it may change with any release.
#pragma once

#include "ir/values/host_tensor.h"
