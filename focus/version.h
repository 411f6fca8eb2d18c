#pragma once

/// FOCUS_VERSION ("0.1.0") and FOCUS_VERSION_MAJOR, _MINOR, _PATCH.
#include "autograd/version.h"
