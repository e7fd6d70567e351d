// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet over the few rows of a block. With a key k, a value v, a decay g, a
// rate b and the state S of one head:
//   S <- g S + (b (v - S g k)) k^T,   y = S q.
// The state that is stored lies before the block: the next launch first runs the rows
// that were kept on it, so a block whose rows are taken back costs no state of its own.
// Reference: splashpy/kernels/gated_delta.py.
#include <metal_stdlib>
using namespace metal;

// Lane t has the decay and the rate of row t.
struct Gates {
  float decay;
  float rate;
};

template <typename Decay, typename Rate, typename Log, typename Bias>
inline Gates gates_of_rows(
    Decay decay, Rate rate, Log log_decay, Bias bias, uint rows, uint heads, uint head,
    uint lane) {
  Gates gates = {0.0f, 0.0f};
  if (lane < rows) {
    const float x = float(decay[lane * heads + head]) + float(bias[head]);
    const float soft = max(x, 0.0f) + precise::log(1.0f + precise::exp(-abs(x)));
    gates.decay = precise::exp(-precise::exp(float(log_decay[head])) * soft);
    gates.rate = 1.0f / (1.0f + precise::exp(-float(rate[lane * heads + head])));
  }
  return gates;
}

// One row on the PER state entries of a lane; a simdgroup has one value channel.
template <int PER, typename Keys>
inline void delta_step(
    thread float* state, Keys keys, uint key_at, float value, float decay, float rate) {
  float memory = 0.0f;
  for (uint i = 0; i < uint(PER); ++i) {
    state[i] *= decay;
    memory += state[i] * float(keys[key_at + i]);
  }
  const float change = rate * (value - simd_sum(memory));
  for (uint i = 0; i < uint(PER); ++i) state[i] += float(keys[key_at + i]) * change;
}

// Rows 0 to `count` - 1 on the state of one head and one value channel.
template <int PER, typename Keys, typename Values>
inline void replay_rows(
    thread float* state, Keys keys, Values values, Gates gates, uint count,
    uint key_heads, uint value_heads, uint width, uint value_width, uint head,
    uint channel, uint lane) {
  const uint key_head = head / (value_heads / key_heads);
  for (uint t = 0; t < count; ++t) {
    const uint key_at = (t * key_heads + key_head) * width + lane * uint(PER);
    const float value =
        float(values[(t * value_heads + head) * value_width + channel]);
    delta_step<PER>(state, keys, key_at, value, simd_shuffle(gates.decay, ushort(t)),
                    simd_shuffle(gates.rate, ushort(t)));
  }
}

// Store the state after the kept rows of the block before; give the outputs of this
// block's rows.
template <typename T, int PER, typename Queries, typename Keys, typename Values>
inline void verify_rows_at(
    thread float* state, Queries queries, Keys keys, Values values, Gates gates,
    device T* out, uint rows, uint key_heads, uint value_heads, uint width,
    uint value_width, uint head, uint channel, uint lane) {
  const uint key_head = head / (value_heads / key_heads);
  for (uint t = 0; t < rows; ++t) {
    const uint key_at = (t * key_heads + key_head) * width + lane * uint(PER);
    const uint value_at = (t * value_heads + head) * value_width + channel;
    delta_step<PER>(state, keys, key_at, float(values[value_at]),
                    simd_shuffle(gates.decay, ushort(t)),
                    simd_shuffle(gates.rate, ushort(t)));
    float sum = 0.0f;
    for (uint i = 0; i < uint(PER); ++i) sum += state[i] * float(queries[key_at + i]);
    sum = simd_sum(sum);
    if (lane == 0) out[value_at] = static_cast<T>(sum);
  }
}

// What happens before the recurrence, one simdgroup per row and head: the causal
// convolution over the rows before and the block's, SiLU, the norm of queries and keys.
// `before` holds the rows of an earlier block; its window begins at `kept`. `rows` is
// that window and this block's rows, for the next one.
template <typename T, int TAPS, int KEY_PER, int VALUE_PER, typename Before,
          typename Inputs, typename Weight>
inline void prework_at(
    Before before, Inputs inputs, Weight weight, device T* queries, device T* keys,
    device T* values, device T* rows, uint kept, float eps, uint t, uint slot,
    uint key_heads, uint value_heads, uint lane) {
  const bool is_value = slot >= 2u * key_heads;
  const uint head = is_value ? slot - 2u * key_heads : slot % key_heads;
  const uint per = is_value ? uint(VALUE_PER) : uint(KEY_PER);
  const uint key_width = uint(KEY_PER) * 32u;
  const uint value_width = uint(VALUE_PER) * 32u;
  const uint channels = 2u * key_heads * key_width + value_heads * value_width;
  const uint start = is_value ? 2u * key_heads * key_width + head * value_width
                              : slot * key_width;
  constexpr uint EARLIER = TAPS - 1;
  constexpr int MOST = KEY_PER > VALUE_PER ? KEY_PER : VALUE_PER;
  float made[MOST];
  float squares = 0.0f;
  for (uint i = 0; i < uint(MOST); ++i) {
    made[i] = 0.0f;
    if (i < per) {
      const uint c = start + lane * per + i;
      float sum = 0.0f;
      for (uint w = 0; w < uint(TAPS); ++w) {
        const uint at = t + w;
        const float x = at < EARLIER ? float(before[(kept + at) * channels + c])
                                     : float(inputs[(at - EARLIER) * channels + c]);
        sum += float(weight[c * uint(TAPS) + w]) * x;
        if (w == EARLIER) rows[at * channels + c] = static_cast<T>(x);
        if (t == 0 && w < EARLIER) rows[at * channels + c] = static_cast<T>(x);
      }
      const T opened = static_cast<T>(sum / (1.0f + precise::exp(-sum)));
      made[i] = float(opened);
      squares += made[i] * made[i];
    }
  }
  const float total = simd_sum(squares);
  const float scale = precise::rsqrt(float(key_width));
  const float norm = precise::rsqrt(total / float(key_width) + eps) * scale;
  for (uint i = 0; i < uint(MOST); ++i)
    if (i < per) {
      if (is_value)
        values[(t * value_heads + head) * value_width + lane * per + i] =
            static_cast<T>(made[i]);
      else if (slot < key_heads)
        queries[(t * key_heads + head) * key_width + lane * per + i] =
            static_cast<T>(made[i] * norm * scale);
      else
        keys[(t * key_heads + head) * key_width + lane * per + i] =
            static_cast<T>(made[i] * norm);
    }
}
