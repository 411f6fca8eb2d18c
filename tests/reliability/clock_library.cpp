// Loaded before the C library (LD_PRELOAD), it makes the clock of a program jump, as an
// administrator, a time server or a machine that slept does:
//   FOCUS_CLOCK_AT  the look at the clock, from 1, before which it jumps
//   FOCUS_CLOCK_BY  seconds
// The clock that only runs (CLOCK_MONOTONIC) is left alone: the system promises that it does not
// jump.
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cstdlib>

#include "tests/reliability/preload.h"

namespace {

std::atomic<long> looks{0};

/// What is added to the time now.
time_t jumped() {
  static const char* const at = getenv("FOCUS_CLOCK_AT");
  static const char* const by = getenv("FOCUS_CLOCK_BY");
  if (at == nullptr || by == nullptr || ++looks < atol(at)) return 0;
  return atol(by);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) {
  static auto* const real = next<int(clockid_t, struct timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += jumped();
  return result;
}
int gettimeofday(struct timeval* now, void* zone) {
  static auto* const real = next<int(struct timeval*, void*)>("gettimeofday");
  const int result = real(now, zone);
  if (result == 0) now->tv_sec += jumped();
  return result;
}
time_t time(time_t* now) {
  static auto* const real = next<time_t(time_t*)>("time");
  const time_t then = real(nullptr) + jumped();
  if (now != nullptr) *now = then;
  return then;
}
}
