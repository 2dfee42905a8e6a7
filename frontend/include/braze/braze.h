// braze.h — all of Braze for C++ programs.
#pragma once

#include "braze/array.h"
#include "braze/autodiff.h"
#include "braze/compile.h"
#include "braze/creation.h"
#include "braze/device.h"
#include "braze/dtype.h"
#include "braze/error.h"
#include "braze/executable.h"
#include "braze/io.h"
#include "braze/jit.h"
#include "braze/named.h"
#include "braze/nn.h"
#include "braze/optim.h"
#include "braze/random.h"
#include "braze/tensor.h"
