#pragma once

#include <cstdint>

// Number types alone, for sources that are compiled for an instruction set of their own: they must
// not pull in inline functions that the linker could share with the rest of the program.
namespace focus {

/// The number type of every tensor: float in the product, double in the twin build that the
/// gradient checks use (FOCUS_REAL_DOUBLE).
#ifdef FOCUS_REAL_DOUBLE
using Real = double;
#else
using Real = float;
#endif
using Index = std::int64_t;
/// The bits of a bf16 number: the upper half of a float's.
using Bf16 = std::uint16_t;

}  // namespace focus
