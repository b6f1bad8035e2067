// The rates at which a block of targets proposes: `proposal_rates` of `ops/envelope.py`
// is the definition, of clusters in balls or cones, without a head.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "functions.h"

// The fields that `run_kernel` of `ops/_native/compiled.py` passes, and those of
// `ops/envelope.py`, in their order; absent tensors are null.
template <typename T> struct Rates {
  const T *a, *b, *c;
  int64_t a_stride, b_stride, c_stride, response, is_dot;
  double scale;
  // Compared with the centres [n, C]; of targets [n]; of clusters [C].
  const T *compared, *norm, *radius, *min_norm, *max_norm, *log_size;
  T *bound, *total;
  int32_t *share;
  double upper, error;
  int64_t num_clusters;
};

namespace {

// The shares of rates are sums of whole numbers, 1 being 2^52.
constexpr double ONE = 0x1p52;
constexpr int SHIFT = 20;

template <typename T> T lesser(T a, T b) { return b < a ? b : a; }
template <typename T> T larger(T a, T b) { return b > a ? b : a; }

// Bound inner products with a cone: `_cone_range` of `ops/clusters.py`.
template <typename T>
inline void cone(T cosine, T norm, T near, T min_norm, T max_norm, T error, T &low,
                 T &high) {
  const T wide = std::sqrt(larger(1 - near * near, T(0)));
  const T inner = larger(std::abs(cosine) - error, T(0));
  const T sine = std::sqrt(1 - inner * inner);
  const T along = cosine * near, across = sine * wide + error;
  high = cosine + error >= near ? T(1) : lesser(along + across, T(1));
  low = cosine - error <= -near ? T(-1) : larger(along - across, T(-1));
  const T longest = max_norm * (1 + error), slack = error * max_norm;
  high = norm * (high * (high > 0 ? longest : min_norm) + slack);
  low = norm * (low * (low < 0 ? longest : min_norm) - slack);
}

// Bound squared distances to a ball: `compared_range`.
template <typename T>
inline void ball(T distance, T radius, T error, T &low, T &high) {
  const T slack = error * (distance + radius);
  low = larger(distance - radius - slack, T(0));
  high = distance + radius + slack;
  low *= low, high *= high;
}

// Where a mixture is largest near its bell: `Mixture.peak` of `ops/scores.py`.
template <typename T> T peak_of(T a, T b, T c) {
  const T width = std::sqrt(c), slope = a * width / (1 - a), last = std::sqrt(T(0.5));
  T u = 0;
  for (int i = 0; i < 20; ++i) {
    const T bell = std::exp(-u * u);
    const T rise = larger(2 * bell * (1 - 2 * u * u), std::numeric_limits<T>::min());
    u = lesser(u + (slope - 2 * u * bell) / rise, last);
  }
  return b + u * width;
}

// The largest response in an interval, near which a mixture has its peak.
template <typename T, int response>
inline T best(T low, T high, T a, T b, T c, T peak) {
  low = lesser(low, high);
  if (response == NEGATIVE) return -low;
  if (response == DIFFERENCE) return 1 - low;
  if (response == HEAT_KERNEL) return exponential(-low / c);
  if (response == IDENTITY) return high;
  static_assert(response <= MIXTURE, "a formula without its largest response");
  const T top = lesser(larger(peak, low), high), offset = top - b, end = high - b;
  const T bell = exponential(-(offset * offset) / c);
  if (response == GAUSSIAN) return bell;
  const T at_end = a * high + (1 - a) * exponential(-(end * end) / c);
  return larger(a * top + (1 - a) * bell, at_end);
}

// Write the bounds of a target.
template <typename T, int response, bool is_dot>
void write_bounds(const Rates<T> &rates, int64_t row) {
  const T a = rates.a ? rates.a[row * rates.a_stride] : 0;
  const T b = rates.b ? rates.b[row * rates.b_stride] : 0;
  const T c = rates.c ? rates.c[row * rates.c_stride] : 1;
  const T peak = response == MIXTURE ? peak_of(a, b, c) : b;
  const T norm = is_dot ? rates.norm[row] : 1, error = T(rates.error);
  const T scale = T(rates.scale), upper = T(rates.upper);
  const T rounding = 16 * std::numeric_limits<T>::epsilon();
  const T *__restrict compared = rates.compared + row * rates.num_clusters;
  const T *__restrict radius = rates.radius, *__restrict min_norm = rates.min_norm;
  const T *__restrict max_norm = rates.max_norm;
  T *__restrict bound = rates.bound + row * rates.num_clusters;
  const int64_t size = rates.num_clusters;
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) {
    T low, high;
    if (is_dot)
      cone(compared[j], norm, radius[j], min_norm[j], max_norm[j], error, low, high);
    else
      ball(compared[j], radius[j], error, low, high);
    const T score = scale * best<T, response>(low, high, a, b, c, peak);
    bound[j] = lesser(score + rounding * (std::abs(score) + scale), upper);
  }
}

template <typename T, bool is_dot> void choose(const Rates<T> &rates, int64_t row) {
  switch (rates.response) {
  case NEGATIVE: return write_bounds<T, NEGATIVE, is_dot>(rates, row);
  case DIFFERENCE: return write_bounds<T, DIFFERENCE, is_dot>(rates, row);
  case HEAT_KERNEL: return write_bounds<T, HEAT_KERNEL, is_dot>(rates, row);
  case GAUSSIAN: return write_bounds<T, GAUSSIAN, is_dot>(rates, row);
  case MIXTURE: return write_bounds<T, MIXTURE, is_dot>(rates, row);
  case IDENTITY: return write_bounds<T, IDENTITY, is_dot>(rates, row);
  default:  // The bound of all scores holds for any formula.
    std::fill_n(rates.bound + row * rates.num_clusters, rates.num_clusters, T(rates.upper));
  }
}

// Write the total of the rates of a target, and the share up to each cluster.
template <typename T>
void write_shares(const Rates<T> &rates, int64_t row, std::vector<double> &buffer) {
  const int64_t size = rates.num_clusters;
  const T *__restrict bound = rates.bound + row * size;
  const T *__restrict log_size = rates.log_size;
  int32_t *__restrict share = rates.share + row * size;
  double *__restrict rate = buffer.data();
  T largest = -std::numeric_limits<T>::infinity();
  double sum = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < size; ++j) largest = larger(largest, bound[j] + log_size[j]);
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < size; ++j) {
    rate[j] = exponential(bound[j] + log_size[j] - largest);
    sum += rate[j];
  }
  rates.total[row] = largest + T(std::log(sum));
  const double unit = ONE / sum;
  int64_t passed = 0;
  for (int64_t j = 0; j < size; ++j) {
    const double fraction = rate[j] * unit;  // NaN if a row is.
    passed += fraction > 0 ? static_cast<int64_t>(fraction) : 0;
    const int64_t level = (passed >> SHIFT) + INT32_MIN;
    share[j] = static_cast<int32_t>(level < INT32_MAX ? level : INT32_MAX);
  }
}

template <typename T> void write_rates(const Rates<T> &rates, int64_t first, int64_t last) {
  std::vector<double> buffer(rates.num_clusters);
  for (int64_t row = first; row < last; ++row) {
    rates.is_dot ? choose<T, true>(rates, row) : choose<T, false>(rates, row);
    write_shares(rates, row, buffer);
  }
}

}  // namespace

extern "C" {

void rates_float(const Rates<float> *rates, int64_t first, int64_t last, double *) {
  write_rates(*rates, first, last);
}

void rates_double(const Rates<double> *rates, int64_t first, int64_t last, double *) {
  write_rates(*rates, first, last);
}
}
