// Rotary positions.  (RoPE, Su et al. 2021)    x:[... t d]  angles:[t m] or [b 1 t m], 2m <= d  ->  y:[... t d]
//   y_first  = x_first cos a - x_second sin a        half: pairs (k, k + m)    interleaved: pairs (2k, 2k + 1)
//   y_second = x_first sin a + x_second cos a        dims from 2m on stay
// A rotation's adjoint is the rotation by -a.
#include "autograd/backward.h"
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/device/launch.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

// Once per angle, not once per head: in double, then rounded to the type that the rotation is done in.
template <class C> struct SineTable {
  const double* angle;
  C *cosine, *sine;
  WHENCE_HD void operator()(index_t i) const {
    cosine[i] = static_cast<C>(::cos(angle[i]));
    sine[i] = static_cast<C>(::sin(angle[i]));
  }
};

// How dims are paired, and where a row of x finds its row of angles.
struct Pairing {
  StridedIndex<1> angles;  // where the row of angles of a row of x lies: axes that share one have a stride of 0
  index_t pairs, width, first_step, second_offset;

  // to = from turned by an angle, for pair k of a row
  template <class T, class C> WHENCE_HD void turn(const T* from, T* to, index_t k, C cosine, C sine) const {
    const C first = from[k * first_step], second = from[k * first_step + second_offset];
    to[k * first_step] = static_cast<T>(first * cosine - second * sine);
    to[k * first_step + second_offset] = static_cast<T>(first * sine + second * cosine);
  }
};

template <class T> struct RotateRow {
  const T* x;
  const compute_t<T>*cosine, *sine;
  T* y;
  Pairing at;
  bool inverse;
  WHENCE_HD void operator()(index_t row) const {
    const index_t angles = at.angles(row)[0];
    const T* from = x + row * at.width;
    T* to = y + row * at.width;
    for (index_t k = 0; k < at.pairs; ++k)
      at.turn(from, to, k, cosine[angles + k], inverse ? -sine[angles + k] : sine[angles + k]);
    for (index_t k = 2 * at.pairs; k < at.width; ++k) to[k] = from[k];
  }
};

// On a GPU: one pair, or one dim that stays, per thread.
template <class T> struct RotatePair {
  const T* x;
  const compute_t<T>*cosine, *sine;
  T* y;
  Pairing at;
  Divisor units;  // of a row
  bool inverse;
  WHENCE_HD void operator()(index_t unit) const {
    const auto [row, k] = units(unit);
    const T* from = x + row * at.width;
    T* to = y + row * at.width;
    if (k >= at.pairs) {
      to[at.pairs + k] = from[at.pairs + k];
      return;
    }
    const index_t angle = at.angles(row)[0] + k;
    at.turn(from, to, k, cosine[angle], inverse ? -sine[angle] : sine[angle]);
  }
};

// The op proper takes the table, so that backward has it without a sine.
struct Rotary {
  static constexpr const char* name = "rotary";
  bool interleaved, inverse = false;
  struct Saved {
    SavedTensor cosine, sine;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& cosine, const Tensor& sine) const {
    saved.cosine = cosine;
    saved.sine = sine;
    const Tensor from = raw::contiguous(x), y = Tensor::like(x);
    const index_t pairs = cosine.size(-1), width = x.size(-1);
    const Shape rows = x.shape().leading(-1);
    Shape per_row = rows;
    per_row.push_back(pairs);
    const Strides stride = raw::expand(cosine, per_row).strides();
    const Pairing at{{rows, {stride}}, pairs, width, interleaved ? 2 : 1, interleaved ? 1 : pairs};
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      if (x.device().is_cpu()) {
        launch(name, x.device(), numel(rows),
            RotateRow<T>{from.data<T>(), cosine.data<C>(), sine.data<C>(), y.data<T>(), at, inverse}, width);
      } else {
        const index_t count = numel(rows) * (width - pairs);
        launch(name, x.device(), count,
            RotatePair<T>{
                from.data<T>(), cosine.data<C>(), sine.data<C>(), y.data<T>(), at, {width - pairs, count}, inverse});
      }
    });
    return y;
  }
  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3>) const {
    return {apply(Rotary{interleaved, !inverse}, Site::current(), dy, saved.cosine.get(), saved.sine.get()), Tensor(),
        Tensor()};
  }
};

void check(const Tensor& x, const Tensor& angles) {
  raw::require_floating(Rotary::name, "x", x);
  if (angles.dtype() != DType::f64)
    fail(Rotary::name, "angles are ", angles.dtype(), "; f64 required: large positions lose their phase");
  if (tracked(angles)) fail(Rotary::name, "angles with history given; rotary has no gradient for them; detach them");
  bool agree = x.rank() >= 2 && angles.rank() >= 2 && angles.rank() <= x.rank() && 2 * angles.size(-1) <= x.size(-1) &&
               angles.size(-2) == x.size(-2);
  for (int axis = -3; agree && axis >= -angles.rank(); --axis)
    agree = angles.shape()[axis] == 1 || angles.shape()[axis] == x.shape()[axis];
  if (!agree) {
    fail(Rotary::name, "x is ", x.shape(), ", angles are ", angles.shape(),
        "; x [... t d] and angles [t m] or [... t m] with 2m <= d required, leading axes equal or 1");
  }
}

// Angles are no input of the check: they have no gradient.
Tensor angles_of(const Shape& shape) { return Tensor::uniform(shape, -9, 9, Stream(1, "angles"), DType::f64); }

Tensor rotated(const Tensor& x, const Shape& angles, bool interleaved, Site at) {
  return rotary(x, angles_of(angles), interleaved, at);
}

std::vector<BadInput> bad_inputs() {
  return {
      refusal("rotary: x is [3,4], angles are [3,3]; x [... t d] and angles [t m] or [... t m] with 2m <= d required, "
              "leading axes equal or 1",
          rotary, draw::zeros(3, 4), Tensor::zeros({3, 3}, DType::f64), false),
      refusal("rotary: angles are f32; f64 required: large positions lose their phase", rotary, draw::zeros(3, 4),
          draw::zeros(3, 2), false)};
}

// The first sample.
Tensor reference(const std::vector<Tensor>& in) {
  const Tensor a = angles_of({5, 2}), first = slice(in[0], -1, 0, 2), second = slice(in[0], -1, 2, 4);
  return concat_along(-1, {first * cos(a) - second * sin(a), first * sin(a) + second * cos(a)});
}

const CheckedEntry checked({Rotary::name, false,
    drawn<Shape, bool>(
        rotated, {{"halves", {2, 3, 5, 4}, {Shape{5, 2}, false}}, {"interleaved", {2, 3, 5, 4}, {Shape{5, 2}, true}},
                     {"angles per sequence, some dims stay", {2, 3, 4, 7}, {Shape{2, 1, 4, 2}, false}},
                     {"no rows", {0, 4}, {Shape{0, 2}, true}}}),
    bad_inputs, reference});

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& angles, bool interleaved, Site at) {
  const CallSite place(at);
  check(x, angles);
  const Tensor flat =
      raw::to_device(raw::contiguous(angles), x.device());  // few numbers, wherever they were worked out
  Tensor cosine, sine;
  visit_floating(Rotary::name, x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    cosine = Tensor::empty(angles.shape(), dtype_of<C>, x.device()),
    sine = Tensor::empty(angles.shape(), dtype_of<C>, x.device());
    launch(Rotary::name, x.device(), flat.numel(), SineTable<C>{flat.data<double>(), cosine.data<C>(), sine.data<C>()},
        32);
  });
  return apply(Rotary{interleaved}, at, x, cosine, sine);
}

}  // namespace whence
