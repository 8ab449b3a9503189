#include "cuda/emulator/matrices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cuda/emulator/settings.h"

namespace whence::gpu::emulator {
namespace {

constexpr int lanes_of_warp = 32;

template <class Lane> Lane& lane_at(const std::uint64_t* lanes, int lane) {
  return *reinterpret_cast<Lane*>(static_cast<std::uintptr_t>(lanes[lane]));
}

// Returns the numbers of a register, as a lane holds them.
template <class T> std::array<T, static_cast<std::size_t>(per_register<T>)> numbers_in(const Register<T>& of) {
  if constexpr (std::is_same_v<T, double>) {
    return {of.low, of.high};
  } else if constexpr (std::is_same_v<T, float>) {
    return {std::bit_cast<float>(of & ~0x1FFFu)};  // a GPU ignores the bits below tf32
  } else {
    std::array<T, 2> both;
    both[0].bits = static_cast<std::uint16_t>(of), both[1].bits = static_cast<std::uint16_t>(of >> 16);
    return both;
  }
}
template <class T> Register<T> register_of(T low, T high) {
  if constexpr (std::is_same_v<T, double>)
    return {low, high};
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<std::uint32_t>(low);
  else
    return std::uint32_t{low.bits} | std::uint32_t{high.bits} << 16;
}

template <class T> struct MmaMatrices {
  compute_t<T> a[16][depth<T>], b[depth<T>][8], c[16][8];
};

// "Matrix fragments for mma.m16n8k16", a0 to a7, b0 to b3, and of m16n8k8 with tf32, a0 to a3, b0 and b1.
template <class T> int row_of_a(int group, int i) {
  if (depth<T> == 16) return i < 2 || (i >= 4 && i < 6) ? group : group + 8;
  return i == 0 || i == 2 ? group : group + 8;
}
template <class T> int column_of_a(int in_group, int i) {
  if (depth<T> == 16) return i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
  return i == 0 || i == 1 ? in_group : in_group + 4;
}
template <class T> int row_of_b(int in_group, int i) {
  if (depth<T> == 16) return i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
  return i == 0 ? in_group : in_group + 4;
}
int row_of_c(int group, int i) { return i < 2 ? group : group + 8; }
int column_of_c(int in_group, int i) { return in_group * 2 + (i & 1); }

template <class T> void gather(const std::uint64_t* lanes, MmaMatrices<T>& of) {
  for (int lane = 0; lane < lanes_of_warp; ++lane) {
    const MmaLane<T>& own = lane_at<MmaLane<T>>(lanes, lane);
    const int group = lane >> 2, in_group = lane % 4;
    const auto put = [&](const Register<T>& from, int register_, const auto& to) {
      const auto numbers = numbers_in<T>(from);
      for (int half = 0; half < per_register<T>; ++half)
        to(register_ * per_register<T> + half) = static_cast<compute_t<T>>(numbers[static_cast<std::size_t>(half)]);
    };
    const auto to_a = [&](int i) -> auto& { return of.a[row_of_a<T>(group, i)][column_of_a<T>(in_group, i)]; };
    const auto to_b = [&](int i) -> auto& { return of.b[row_of_b<T>(in_group, i)][group]; };
    each<4>([&](auto k) { put((*own.a)[k], k, to_a); });
    put(own.b0, 0, to_b), put(own.b1, 1, to_b);
    each<4>([&](auto k) { of.c[row_of_c(group, k)][column_of_c(in_group, k)] = (*own.c)[k].plain(); });
  }
}

// Adds as an H200 does (tests/cuda/tensor_cores.cpp measures it): the largest of c and all products fixes the place
// below which the others are truncated, two bits below f32's last; their sum is truncated to f32.
float cut_sum(const float* row, const float (*b)[8], int column, int terms, float c) {
  double exact[17], sum = c;
  exact[terms] = sum;
  int top = c == 0 ? std::numeric_limits<int>::min() : std::ilogb(c);
  for (int k = 0; k < terms; ++k) {
    exact[k] = static_cast<double>(row[k]) * static_cast<double>(b[k][column]);
    sum += exact[k];
    if (exact[k] != 0 && std::isfinite(exact[k])) top = std::max(top, std::ilogb(row[k]) + std::ilogb(b[k][column]));
  }
  if (!std::isfinite(sum) || top == std::numeric_limits<int>::min()) return static_cast<float>(sum);
  sum = 0;
  const double unit = std::ldexp(1.0, top - 25);
  for (int k = 0; k <= terms; ++k) sum += std::trunc(exact[k] / unit);
  sum *= unit;
  const float nearest = static_cast<float>(sum);
  return std::abs(static_cast<double>(nearest)) > std::abs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

}  // namespace

template <class T> void multiply_together(const std::uint64_t* lanes) {
  MmaMatrices<T> of;
  gather<T>(lanes, of);
  ++(depth<T> == 16 ? running.now.mma_16 : running.now.mma_8);
  bool cut = false;
  if constexpr (!std::is_same_v<T, double>) {
    cut = settings().cut_sums;
    for (int i = 0; i < 16 && cut; ++i)
      for (int j = 0; j < 8; ++j) of.c[i][j] = cut_sum(of.a[i], of.b, j, depth<T>, of.c[i][j]);
  }
  for (int i = 0; i < 16 && !cut; ++i)
    for (int k = 0; k < depth<T>; ++k)
      for (int j = 0; j < 8; ++j) of.c[i][j] += of.a[i][k] * of.b[k][j];  // products of 16 bits and of tf32 are exact
  for (int lane = 0; lane < lanes_of_warp; ++lane) {
    FragmentC<T>& c = *lane_at<MmaLane<T>>(lanes, lane).c;
    each<4>([&](auto k) { c[k] = of.c[row_of_c(lane >> 2, k)][column_of_c(lane % 4, k)]; });
  }
}

// Lane l % 8 of matrix l / 8 gives a row's address. Four lanes share a row of each matrix, a register each.
template <class T, bool transposed> void give_out_together(const std::uint64_t* lanes) {
  ++running.now.fragment_loads;
  for (int lane = 0; lane < lanes_of_warp; ++lane) {
    const int row = lane >> 2, column = lane % 4 * per_register<T>, last = column + per_register<T> - 1;
    each<4>([&](auto matrix) {
      const auto at = [&](int i, int j) { return lane_at<RowLane<T>>(lanes, matrix * 8 + i).row[j]; };
      (*lane_at<RowLane<T>>(lanes, lane).registers)[matrix] =
          transposed ? register_of<T>(at(column, row), at(last, row)) : register_of<T>(at(row, column), at(row, last));
    });
  }
}

// The reverse of a load of transposed matrices: a row is a column of what the lanes hold.
template <class T> void collect_together(const std::uint64_t* lanes) {
  for (int lane = 0; lane < lanes_of_warp; ++lane)
    each<4>([&](auto matrix) {
      const int i = lane % 8;
      for (int j = 0; j < matrix_row<T> && lane / 8 == matrix; ++j)
        lane_at<StoredLane<T>>(lanes, lane).row[j] = numbers_in<T>(
            lane_at<StoredLane<T>>(lanes, j * 4 + i / 2).registers[matrix])[static_cast<std::size_t>(i % 2)];
    });
}

template <class T> void transpose_together(const std::uint64_t* lanes) {
  T matrix[8][8];
  for (int lane = 0; lane < lanes_of_warp; ++lane) {
    const auto both = numbers_in<T>(lane_at<Register<T>>(lanes, lane));
    for (int half = 0; half < 2; ++half) matrix[lane >> 2][lane % 4 * 2 + half] = both[static_cast<std::size_t>(half)];
  }
  for (int lane = 0; lane < lanes_of_warp; ++lane)
    lane_at<Register<T>>(lanes, lane) =
        register_of<T>(matrix[lane % 4 * 2][lane >> 2], matrix[lane % 4 * 2 + 1][lane >> 2]);
}

template void multiply_together<Float16>(const std::uint64_t*);
template void multiply_together<BFloat16>(const std::uint64_t*);
template void multiply_together<float>(const std::uint64_t*);
template void multiply_together<double>(const std::uint64_t*);
template void give_out_together<Float16, false>(const std::uint64_t*);
template void give_out_together<BFloat16, false>(const std::uint64_t*);
template void give_out_together<float, false>(const std::uint64_t*);
template void give_out_together<double, false>(const std::uint64_t*);
template void give_out_together<Float16, true>(const std::uint64_t*);
template void give_out_together<BFloat16, true>(const std::uint64_t*);
template void give_out_together<double, true>(const std::uint64_t*);
template void transpose_together<Float16>(const std::uint64_t*);
template void transpose_together<BFloat16>(const std::uint64_t*);
template void transpose_together<double>(const std::uint64_t*);
template void collect_together<Float16>(const std::uint64_t*);
template void collect_together<BFloat16>(const std::uint64_t*);
template void collect_together<double>(const std::uint64_t*);

}  // namespace whence::gpu::emulator
