// Functions of scores that the kernels share.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

enum Response { IDENTITY, NEGATIVE, DIFFERENCE, HEAT_KERNEL, GAUSSIAN, MIXTURE };

// The exponential function to the last bit but one, for a vector of registers.
inline float exponential(float number) {
  float x = number < -87.0f ? -87.0f : number;
  x = x > 88.0f ? 88.0f : x;
  const float shift = 12582912.0f;  // Rounds to a whole number.
  const float power = x * 1.44269504f + shift, whole = power - shift;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float value = 1.9875691500e-4f;
  value = value * r + 1.3981999507e-3f;
  value = value * r + 8.3334519073e-3f;
  value = value * r + 4.1665795894e-2f;
  value = value * r + 1.6666665459e-1f;
  value = value * r + 5.0000001201e-1f;
  value = value * r * r + r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  bits += static_cast<int32_t>(whole) << 23;
  std::memcpy(&value, &bits, 4);
  return number == number ? value : number;  // NaN stays what it is.
}

inline double exponential(double x) { return std::exp(x); }

// The logarithm of a positive number, likewise.
inline float logarithm(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, 4);
  // The power of two next to the number, and what is left about 1.
  const int32_t power = (bits - 0x3f3504f3) >> 23;
  bits -= power * (1 << 23);
  float r;
  std::memcpy(&r, &bits, 4);
  r -= 1;
  float value = 7.0376836292e-2f;
  value = value * r - 1.1514610310e-1f;
  value = value * r + 1.1676998740e-1f;
  value = value * r - 1.2420140846e-1f;
  value = value * r + 1.4249322787e-1f;
  value = value * r - 1.6668057665e-1f;
  value = value * r + 2.0000714765e-1f;
  value = value * r - 2.4999993993e-1f;
  value = value * r + 3.3333331174e-1f;
  const float whole = static_cast<float>(power), square = r * r;
  value = value * square * r - whole * 2.12194440e-4f - 0.5f * square;
  return r + value + whole * 0.693359375f;
}

inline double logarithm(double x) { return std::log(x); }

}  // namespace
