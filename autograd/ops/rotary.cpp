// Rotary positions.  (RoPE, Su et al. 2021)    x:[... t d]  angles:[t m], [b 1 t m], [b h t m], 2m <= d  ->  y:[... t d]
//   y_first  = x_first cos a - x_second sin a        half: pairs (k, k + m)    interleaved: pairs (2k, 2k + 1)
//   y_second = x_first sin a + x_second cos a        dims from 2m on are unchanged
// A rotation's adjoint is the rotation by -a. The derivative with respect to a is y rotated by another 90 degrees:
//   da       = dy_second y_first - dy_first y_second, summed over the axes that share an angle
#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/launch.h"
#include "tensor/math.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

// Computed once per angle, not per head: in the precision of the angles, then rounded to the type of the rotation.
template <class A, class C> struct SineTable {
  const A* angle;
  C *cosine, *sine;
  WHENCE_HD void operator()(index_t i) const {
    const compute_t<A> a = angle[i];
    cosine[i] = static_cast<C>(math::cos(a));
    sine[i] = static_cast<C>(math::sin(a));
  }
};

struct Table {
  Tensor cosine, sine;

  // Makes the table on the device of x; the angles may be on the CPU.
  Table(const Tensor& angles, const Tensor& x)
      : cosine(Tensor::empty(angles.shape(), compute_dtype(x.dtype()), x.device())), sine(Tensor::like(cosine)) {
    const Tensor flat = raw::to_device(raw::contiguous(angles), x.device());
    const auto fill = [&]<class A, class C>(Type<A>, Type<C>) {
      launch("rotary", x.device(), flat.numel(), SineTable<A, C>{flat.data<A>(), cosine.data<C>(), sine.data<C>()}, 32);
    };
    visit_floating("rotary", angles.dtype(), [&]<class A>(Type<A> from) {
      if constexpr (std::is_same_v<A, double>)
        visit_floating("rotary", x.dtype(), [&]<class T>(Type<T>) { fill(from, Type<compute_t<T>>{}); });
      else
        fill(from, Type<compute_t<A>>{});
    });
  }
};

// The dims that form a pair, and the row of angles that each row of x uses.
struct RotaryLayout {
  StridedIndex<1> angles;  // row of angles of a row of x: axes that share one have a stride of 0
  index_t pairs, width, first_step, second_offset;

  // to = pair k of `from`, rotated
  template <class T, class C> WHENCE_HD void rotate(const T* from, T* to, index_t k, C cosine, C sine) const {
    const C first = from[k * first_step], second = from[k * first_step + second_offset];
    to[k * first_step] = static_cast<T>(first * cosine - second * sine);
    to[k * first_step + second_offset] = static_cast<T>(first * sine + second * cosine);
  }
};

template <class T> struct RotateRow {
  const T* x;
  const compute_t<T>*cosine, *sine;
  T* y;
  RotaryLayout at;
  bool inverse;
  WHENCE_HD void operator()(index_t row) const {
    const index_t angles = at.angles(row)[0];
    const T* from = x + row * at.width;
    T* to = y + row * at.width;
    for (index_t k = 0; k < at.pairs; ++k)
      at.rotate(from, to, k, cosine[angles + k], inverse ? -sine[angles + k] : sine[angles + k]);
    for (index_t k = 2 * at.pairs; k < at.width; ++k) to[k] = from[k];
  }
};

// GPU: one pair, or one unchanged dim, per thread.
template <class T> struct RotatePair {
  const T* x;
  const compute_t<T>*cosine, *sine;
  T* y;
  RotaryLayout at;
  Divisor units;  // threads of a row
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
    at.rotate(from, to, k, cosine[angle], inverse ? -sine[angle] : sine[angle]);
  }
};

// Rotates pairs of x [... t d] by the angles of a table [... t m].
Tensor rotate_pairs(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved, bool inverse) {
  const Tensor from = raw::contiguous(x), y = Tensor::like(x);
  const index_t pairs = cosine.size(-1), width = x.size(-1);
  const Shape rows = x.shape().leading(-1);
  Shape per_row = rows;
  per_row.push_back(pairs);
  const Strides stride = raw::expand(cosine, per_row).strides();
  const RotaryLayout at{{rows, {stride}}, pairs, width, interleaved ? 2 : 1, interleaved ? 1 : pairs};
  visit_floating("rotary", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    if (x.device().is_cpu()) {
      launch("rotary", x.device(), numel(rows),
          RotateRow<T>{from.data<T>(), cosine.data<C>(), sine.data<C>(), y.data<T>(), at, inverse}, width);
    } else {
      const index_t count = numel(rows) * (width - pairs);
      launch("rotary", x.device(), count,
          RotatePair<T>{
              from.data<T>(), cosine.data<C>(), sine.data<C>(), y.data<T>(), at, {width - pairs, count}, inverse});
    }
  });
  return y;
}

// Rotates by constant angles. The op takes the table, so that backward computes no sines.
struct Rotary {
  static constexpr const char* name = "rotary";
  bool interleaved, inverse = false;
  struct Saved {
    SavedTensor cosine, sine;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& cosine, const Tensor& sine) const {
    saved.cosine = cosine;
    saved.sine = sine;
    return rotate_pairs(x, cosine, sine, interleaved, inverse);
  }
  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3>) const {
    return {apply(Rotary{interleaved, !inverse}, Site::current(), dy, saved.cosine.get(), saved.sine.get()), Tensor(),
        Tensor()};
  }
};

// Rotates by angles that have a gradient.
struct RotaryByAngles {
  static constexpr const char* name = Rotary::name;
  static constexpr std::size_t factor = 1;
  bool interleaved, inverse = false;
  struct Saved {
    SavedTensor y, angles, cosine, sine;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& angles) const {
    const Table table(angles, x);
    const Tensor y = rotate_pairs(x, table.cosine, table.sine, interleaved, inverse);
    saved.y.output(y);
    saved.angles = angles;
    saved.cosine = table.cosine;
    saved.sine = table.sine;
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
    const Tensor angles = saved.angles.get();
    Grads<2> gradients;
    if (needs[0] && recording())
      gradients[0] = apply(RotaryByAngles{interleaved, !inverse}, Site::current(), dy, angles);
    else if (needs[0])
      gradients[0] = rotate_pairs(dy, saved.cosine.get(), saved.sine.get(), interleaved, !inverse);
    if (needs[1]) {
      const Tensor y = saved.y.get();
      const index_t pairs = angles.size(-1);
      const Tensor turning =
          sum_to(half(dy, 1, pairs) * half(y, 0, pairs) - half(dy, 0, pairs) * half(y, 1, pairs), angles.shape());
      gradients[1] = cast(inverse ? -turning : turning, angles.dtype());
    }
    return gradients;
  }
  // Returns the first or second dims of all pairs, in the accumulation type.
  Tensor half(const Tensor& x, index_t which, index_t pairs) const {
    return cast(interleaved ? slice(x, -1, std::min(which, 2 * pairs), 2 * pairs, 2)
                            : slice(x, -1, which * pairs, (which + 1) * pairs),
        compute_dtype(x.dtype()));
  }
};

void check(const Tensor& x, const Tensor& angles) {
  raw::require_floating(Rotary::name, "x", x);
  raw::require_floating(Rotary::name, "angles", angles);
  const DType wide = compute_dtype(angles.dtype());
  if (wide != DType::f64 && wide != DType::dual && wide != compute_dtype(x.dtype()))
    fail(Rotary::name, "x is ", x.dtype(), ", angles are ", angles.dtype(), "; angles of f64 or of x's dtype required");
  if (tracked(angles) && angles.device() != x.device())
    fail(Rotary::name, "x and angles with history on different devices given; one device required");
  bool agree = x.rank() >= 2 && angles.rank() >= 2 && angles.rank() <= x.rank() && 2 * angles.size(-1) <= x.size(-1) &&
               angles.size(-2) == x.size(-2);
  for (int axis = -3; agree && axis >= -angles.rank(); --axis)
    agree = angles.shape()[axis] == 1 || angles.shape()[axis] == x.shape()[axis];
  if (!agree) {
    fail(Rotary::name, "x is ", x.shape(), ", angles are ", angles.shape(),
        "; x [... t d] and angles [t m] or [... t m] with 2m <= d required, leading axes equal or 1");
  }
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& angles, bool interleaved, Site site) {
  const CallSite place(site);
  check(x, angles);
  if (tracked(angles) || angles.dtype() == DType::dual) return apply(RotaryByAngles{interleaved}, site, x, angles);
  const Table table(angles, x);
  return apply(Rotary{interleaved}, site, x, table.cosine, table.sine);
}

}  // namespace whence
