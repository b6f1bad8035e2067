// The rounds of the Gumbel race on a processor: `ops/race.py` is the definition.
//
// A race ends with its last arrival, and nothing is stored for proposals that are
// rejected. Some proposals at a time are drawn before they are scored, so that their
// rows come from memory side by side.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "functions.h"

namespace {

// SplitMix64, as in `ops/noise.py`.
constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15u;
constexpr uint64_t MIX_1 = 0xBF58476D1CE4E5B9u;
constexpr uint64_t MIX_2 = 0x94D049BB133111EBu;
// Proposals that are drawn, and that are scored, at a time; numbers of a register.
constexpr int BATCH = 16, HALF = 8, LANES = 16;
// Races in turns.
constexpr int AT_ONCE = 8;
// The bytes of a row that are fetched ahead, and of a line of the cache.
constexpr int64_t AHEAD = 512, LINE = 64;

uint64_t random_word(uint64_t state) {
  uint64_t word = (state ^ (state >> 30)) * MIX_1;
  word = (word ^ (word >> 27)) * MIX_2;
  return word ^ (word >> 31);
}

int64_t below(uint64_t word, int64_t size) {
  return static_cast<int64_t>(((word >> 32) * static_cast<uint64_t>(size)) >> 32);
}

template <typename T> T uniform(uint64_t word) {
  constexpr int bits = sizeof(T) == 8 ? 32 : 23;
  constexpr uint64_t scale = uint64_t(1) << bits;
  return (static_cast<T>(word & (scale - 1)) + T(0.5)) * (T(1) / static_cast<T>(scale));
}

// Count the ascending entries that do not exceed each of some values. All searches take
// a step together, without branches: none would be predicted, and a single one waits
// for each entry.
template <typename E, typename V>
void count_up_to(const E *__restrict table, int32_t size, const V *__restrict value,
                 int32_t *__restrict count) {
  for (int i = 0; i < BATCH; ++i) count[i] = 0;
  while (size > 1) {
    const int32_t half = size / 2;
#pragma omp simd
    for (int i = 0; i < BATCH; ++i) {
      const E entry = table[count[i] + half - 1];
      count[i] += entry <= value[i] ? half : 0;
    }
    size -= half;
  }
  if (size == 1)
    for (int i = 0; i < BATCH; ++i) count[i] += table[count[i]] <= value[i];
}

}  // namespace

// The fields that `run_kernel` of `ops/_native/compiled.py` passes, and those of
// `ops/race.py`, in their order; absent tensors are null.
template <typename T> struct Race {
  const T *a, *b, *c;
  int64_t a_stride, b_stride, c_stride, response, is_dot;
  double scale;
  const T *dst, *src;
  const int64_t *excluded, *start, *listed, *count;
  const T *bound, *total;
  const int32_t *share;
  const int64_t *head, *member, *offset, *state;
  int64_t *out_source;
  T *out_noise, *out_horizon;
  int64_t *out_accepted;
  T *out_clock;
  int64_t channels, races_per_target, num_proposals, min_arrivals, num_arrivals;
  int64_t num_bounds, num_clusters, scan_factor, is_distinct;
};

namespace {

// Sum a function of the channels of two rows in four sums, which `score` adds up.
template <typename T, typename F>
inline void sum_channels(const T *u, const T *v, int64_t channels, T *sum, F term) {
  T lane[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= channels; i += LANES)
    for (int j = 0; j < LANES; ++j) lane[j] += term(u[i + j], v[i + j]);
  for (int j = 0; i < channels; ++i, ++j) lane[j] += term(u[i], v[i]);
  static_assert(LANES == 16, "the sums below");
  for (int j = 0; j < 8; ++j) lane[j] += lane[j + 8];
  for (int j = 0; j < 4; ++j) sum[j] = lane[j] + lane[j + 4];
}

// Turn compared values of half a batch into responses.
template <typename T> void respond(const Race<T> &race, int64_t row, T *value) {
  const T a = race.a ? race.a[row * race.a_stride] : 0;
  const T b = race.b ? race.b[row * race.b_stride] : 0;
  const T c = race.c ? race.c[row * race.c_stride] : 1;
  switch (race.response) {
  case NEGATIVE:
    for (int i = 0; i < HALF; ++i) value[i] = -value[i];
    break;
  case DIFFERENCE:
    for (int i = 0; i < HALF; ++i) value[i] = 1 - value[i];
    break;
  case HEAT_KERNEL:
#pragma omp simd
    for (int i = 0; i < HALF; ++i) value[i] = exponential(-value[i] / c);
    break;
  case GAUSSIAN:
#pragma omp simd
    for (int i = 0; i < HALF; ++i)
      value[i] = exponential(-((value[i] - b) * (value[i] - b)) / c);
    break;
  case MIXTURE:
#pragma omp simd
    for (int i = 0; i < HALF; ++i) {
      const T bell = exponential(-((value[i] - b) * (value[i] - b)) / c);
      value[i] = a * value[i] + (1 - a) * bell;
    }
    break;
  default:
    break;
  }
}

template <typename T> class Runner {
 public:
  explicit Runner(const Race<T> &race) : race_(race), scores_(race.num_arrivals) {}

  // Begin a race: its first proposals are drawn, and their rows fetched.
  void begin(int64_t index) {
    race_index_ = index, row_ = index / race_.races_per_target;
    state_ = static_cast<uint64_t>(race_.state[index]);
    num_accepted_ = 0, clock_ = 0, turn_ = 0, limit_ = race_.num_proposals;
    // A short race mostly ends with the first half of a batch.
    step_ = limit_ > BATCH ? BATCH : HALF;
    next();
  }

  // Score the rows that were fetched, and fetch the next ones; return whether the race
  // goes on.
  bool advance() {
    const int count = limit_ - turn_ < BATCH ? int(limit_ - turn_) : BATCH;
    const int last = at_ + step_ < count ? at_ + step_ : count;
    for (int first = at_; first < last; first += HALF) score(first, last);
    double time[BATCH];
    uint32_t accepted = 0;
    for (int i = at_; i < last; ++i) {
      time[i] = clock_ += double(gap_[i]);
      accepted |= uint32_t(is_accepted_[i]) << i;
    }
    for (; accepted != 0; accepted &= accepted - 1) {
      const int i = __builtin_ctz(accepted);
      if (arrive(i, time[i])) return finish(time[i]);
    }
    if (last < count) {
      fetch(last);
      return true;
    }
    turn_ += count;
    if (turn_ == limit_) {  // A round ends.
      const bool is_long = limit_ * race_.scan_factor >= race_.count[row_];
      if (num_accepted_ >= race_.min_arrivals || is_long) return finish(clock_);
      limit_ = 2 * limit_ + race_.num_proposals, step_ = BATCH;
    }
    next();
    return true;
  }

  // Draw the sources that represent later arrivals, one of each equal part of the rates,
  // and the logarithms of their shares.
  void draw_tail(int64_t index) {
    race_index_ = index, row_ = index / race_.races_per_target;
    state_ = static_cast<uint64_t>(race_.state[index]);
    const int64_t size = race_.num_arrivals;
    for (int64_t turn = 0; turn < size; turn += BATCH) {
      draw_words(turn);
      for (int i = 0; i < BATCH; ++i) {
        const double fraction = (double(second_word_[i] >> 32) + 0.5) * 0x1p-32;
        const double stratum = 0x1p32 / double(size);
        const double level = (double(turn + i) + fraction) * stratum - 0x1p31;
        const bool is_inside = level < 0x1p31;
        bound_level_[i] = is_inside ? static_cast<int32_t>(std::floor(level)) : INT32_MAX;
      }
      propose_bounded();
      for (int i = 0; i < BATCH && turn + i < size; ++i) {
        const int64_t out = index * size + turn + i;
        const T share = race_.total[row_] - bound_[i] - std::log(T(size));
        race_.out_source[out] = source_[i];
        race_.out_noise[out] = is_void_[i] ? T(-INFINITY) : share;
      }
    }
  }

  T lowest = INFINITY, highest = -INFINITY;  // Of all scores.

 private:
  // Draw a batch of proposals.
  void next() {
    draw_words(turn_);
    for (int i = 0; i < BATCH; ++i) {
      level_[i] = uniform<T>(word_[i]), gap_[i] = -logarithm(uniform<T>(second_word_[i]));
      bound_level_[i] = static_cast<int32_t>(second_word_[i] >> 32);
    }
    race_.share ? propose_bounded() : propose_flat();
    fetch(0);
  }

  void draw_words(int64_t turn) {
    for (int i = 0; i < BATCH; ++i) {
      const uint64_t step = static_cast<uint64_t>(2 * (turn + i) + 1);
      const uint64_t position = state_ + GAMMA * step;
      word_[i] = random_word(position), second_word_[i] = random_word(position + GAMMA);
    }
  }

  // Fetch the rows of some proposals.
  void fetch(int first) {
    const int64_t bytes = race_.channels * int64_t(sizeof(T));
    at_ = first;
    for (int i = first; i < first + step_; ++i) {
      const T *row = race_.src + source_[i] * race_.channels;
      for (int64_t at = 0; at < bytes && at < AHEAD; at += LINE)
        __builtin_prefetch(reinterpret_cast<const char *>(row) + at);
    }
  }

  // Propose uniform candidates.
  void propose_flat() {
    const int64_t start = race_.start ? race_.start[row_] : 0;
    for (int i = 0; i < BATCH; ++i) {
      int64_t position = below(word_[i], race_.count[row_]);
      if (race_.excluded) position += position >= race_.excluded[row_] - start;
      source_[i] = start + position, bound_[i] = race_.bound[row_], is_void_[i] = false;
    }
    for (int i = 0; i < BATCH && race_.listed; ++i) source_[i] = race_.listed[source_[i]];
  }

  // Propose candidates of clusters and of a head. A void one advances the clock, but is
  // never accepted.
  void propose_bounded() {
    const int32_t bounds = int32_t(race_.num_bounds);
    const int32_t clusters = int32_t(race_.num_clusters);
    int32_t index[BATCH], near[BATCH];
    count_up_to(race_.share + row_ * bounds, bounds, bound_level_, index);
    const int64_t *from[BATCH], *head = race_.head + row_ * (bounds - clusters);
    for (int i = 0; i < BATCH; ++i) {
      // Rounding may lead past the last.
      index[i] = index[i] < bounds ? index[i] : bounds - 1;
      bound_[i] = race_.bound[row_ * bounds + index[i]];
      const int32_t cluster = index[i] < clusters ? index[i] : 0;
      const int64_t first = race_.offset[cluster];
      from[i] = race_.member + first + below(word_[i], race_.offset[cluster + 1] - first);
      if (index[i] >= clusters) from[i] = head + (index[i] - clusters);
      __builtin_prefetch(from[i]);
    }
    for (int i = 0; i < BATCH; ++i) source_[i] = *from[i], is_void_[i] = false;
    if (race_.head) {  // Members of the head have their own rates.
      count_up_to(head, bounds - clusters, source_, near);
      for (int i = 0; i < BATCH; ++i)
        is_void_[i] =
            index[i] < clusters && near[i] > 0 && head[near[i] - 1] == source_[i];
    }
    for (int i = 0; i < BATCH && race_.excluded; ++i)
      is_void_[i] |= source_[i] == race_.excluded[row_];
  }

  // Score half a batch, and decide which proposals are accepted.
  void score(int first, int last) {
    const T *u = race_.dst + row_ * race_.channels;
    T score[HALF], rate[HALF], sums[HALF][4] = {};
    for (int i = first; i < last && i < first + HALF; ++i) {
      const T *v = race_.src + source_[i] * race_.channels;
      T *sum = sums[i - first];
      if (race_.is_dot)
        sum_channels(u, v, race_.channels, sum, [](T x, T y) { return x * y; });
      else
        sum_channels(u, v, race_.channels, sum,
                     [](T x, T y) { return (x - y) * (x - y); });
    }
#pragma omp simd
    for (int i = 0; i < HALF; ++i)
      score[i] = (sums[i][0] + sums[i][2]) + (sums[i][1] + sums[i][3]);
    const T limit = race_.is_dot ? INFINITY : sizeof(T) == 8 ? T(1e300) : T(1e36);
    for (int i = 0; i < HALF; ++i)
      score[i] = score[i] > limit ? limit : score[i];  // NaN stays what it is.
    respond(race_, row_, score);
    const T scale = T(race_.scale);
    for (int i = 0; i < HALF; ++i) score[i] *= scale;
    for (int i = first; i < last && i < first + HALF; ++i) {
      lowest = score[i - first] < lowest ? score[i - first] : lowest;
      highest = score[i - first] > highest ? score[i - first] : highest;
    }
#pragma omp simd
    for (int i = 0; i < HALF; ++i) rate[i] = exponential(score[i] - bound_[first + i]);
    for (int i = 0; i < HALF; ++i) {
      score_[first + i] = score[i];
      is_accepted_[first + i] = (level_[first + i] < rate[i]) & !is_void_[first + i];
    }
  }

  // Keep an accepted proposal; return whether it is the last arrival.
  bool arrive(int i, double time) {
    const int64_t num_arrivals = race_.num_arrivals;
    int64_t *source = race_.out_source + race_index_ * num_arrivals;
    for (int64_t j = 0; race_.is_distinct && j < num_accepted_; ++j)
      if (source[j] == source_[i]) return false;
    source[num_accepted_] = source_[i], scores_[num_accepted_] = score_[i];
    race_.out_noise[race_index_ * num_arrivals + num_accepted_] = T(time);
    return ++num_accepted_ == num_arrivals;
  }

  // Turn the times of arrivals into noise.
  bool finish(double time) const {
    T *noise = race_.out_noise + race_index_ * race_.num_arrivals;
    const T log_rate = race_.total[row_];
    for (int64_t i = 0; i < num_accepted_; ++i)
      noise[i] = log_rate - logarithm(noise[i]) - scores_[i];
    race_.out_horizon[race_index_] = std::log(T(time)) - log_rate;
    race_.out_accepted[race_index_] = num_accepted_;
    race_.out_clock[race_index_] = T(time);
    return false;
  }

  Race<T> race_;
  int64_t race_index_ = 0, row_ = 0, num_accepted_ = 0;
  int64_t turn_ = 0, limit_ = 0;  // The first proposal of the batch, the end of the round.
  int at_ = 0, step_ = 0;  // Where the rows that were fetched begin, and their number.
  uint64_t state_ = 0;
  double clock_ = 0;  // In units of the mean gap.
  std::vector<T> scores_;  // Of the arrivals.
  // A batch of proposals.
  uint64_t word_[BATCH], second_word_[BATCH];
  int64_t source_[BATCH];
  T bound_[BATCH], level_[BATCH], gap_[BATCH], score_[BATCH];
  int32_t bound_level_[BATCH];  // Where they lie among the rates.
  bool is_void_[BATCH], is_accepted_[BATCH];
};

// Run some races in turns: the rows of one come from memory while others go on.
template <typename T>
void run_races(const Race<T> &race, int64_t first, int64_t last, double *range) {
  std::vector<Runner<T>> running;
  for (int i = 0; i < AT_ONCE && first < last; ++i) {
    running.emplace_back(race);
    running.back().begin(first++);
  }
  range[0] = INFINITY, range[1] = -INFINITY;
  while (!running.empty()) {
    for (size_t i = 0; i < running.size();) {
      Runner<T> &runner = running[i];
      if (runner.advance()) {
        ++i;
      } else if (first < last) {
        runner.begin(first++), ++i;
      } else {
        range[0] = runner.lowest < range[0] ? runner.lowest : range[0];
        range[1] = runner.highest > range[1] ? runner.highest : range[1];
        std::swap(runner, running.back());
        running.pop_back();
      }
    }
  }
}

template <typename T> void draw_tails(const Race<T> &race, int64_t first, int64_t last) {
  Runner<T> runner(race);
  for (int64_t index = first; index < last; ++index) runner.draw_tail(index);
}

}  // namespace

extern "C" {

void race_float(const Race<float> *race, int64_t first, int64_t last, double *range) {
  run_races(*race, first, last, range);
}

void race_double(const Race<double> *race, int64_t first, int64_t last, double *range) {
  run_races(*race, first, last, range);
}

void tail_float(const Race<float> *race, int64_t first, int64_t last, double *) {
  draw_tails(*race, first, last);
}

void tail_double(const Race<double> *race, int64_t first, int64_t last, double *) {
  draw_tails(*race, first, last);
}
}
