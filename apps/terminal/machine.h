#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The machine that a speed was measured on.
namespace focus {

/// The processor's own name; "unknown" where the system does not say.
std::string processor_name();
/// The most memory that this process has had resident so far, in bytes; 0 where the system does
/// not say.
std::size_t peak_resident_bytes();
/// GFLOP/s of multiply-adds (two operations each) that stay in registers, on as many threads as
/// there are, the best of several short runs: what no product can exceed.
double measured_peak_gflops();

/// The middle of the values, or the mean of the two in the middle. Not for none.
double median(std::vector<double> values);

/// Processor, threads, instruction set and number type: what stands beside every speed.
nlohmann::ordered_json machine_json();
std::string machine_line();

}  // namespace focus
