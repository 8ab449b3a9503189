// The products of blas.h without a BLAS, as in a web page. Panels of b, two vectors of columns wide, are packed. Then
// four rows of a times one panel stay in registers along the inner axis.
#include <algorithm>
#include <vector>

#include "tensor/cpu/blas.h"

namespace whence::blas {
namespace {

constexpr index_t rows_at_once = 4, vectors_at_once = 2;

template <class T> struct Panel {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr index_t lanes = 16 / sizeof(T), width = vectors_at_once * lanes;
};

template <class T> T number_of(const Factor<T>& x, index_t row, index_t column) {
  return x.transposed ? x.at[column * x.leading + row] : x.at[row * x.leading + column];
}

}  // namespace

void require_buffers(int) {}

template <class T>
void multiply(
    index_t m, index_t n, index_t k, T alpha, const Factor<T>& a, const Factor<T>& b, T beta, T* c, index_t leading) {
  using V = typename Panel<T>::Vector;
  constexpr index_t width = Panel<T>::width;
  static thread_local std::vector<V> packed;
  packed.resize(static_cast<std::size_t>(k * vectors_at_once));
  T* const panel = reinterpret_cast<T*>(packed.data());
  const index_t across = a.transposed ? 1 : a.leading, along = a.transposed ? a.leading : 1;
  for (index_t column = 0; column < n; column += width) {
    const index_t columns = std::min(width, n - column);
    for (index_t l = 0; l < k; ++l)
      for (index_t j = 0; j < width; ++j) panel[l * width + j] = j < columns ? number_of(b, l, column + j) : T(0);
    for (index_t row = 0; row < m; row += rows_at_once) {
      const index_t rows = std::min(rows_at_once, m - row);
      const T* from[rows_at_once];  // with fewer rows, the last is multiplied again and not stored
      for (index_t r = 0; r < rows_at_once; ++r) from[r] = a.at + (row + std::min(r, rows - 1)) * across;
      V sums[rows_at_once][vectors_at_once] = {};
      for (index_t l = 0; l < k; ++l)
        for (index_t r = 0; r < rows_at_once; ++r)
          for (index_t v = 0; v < vectors_at_once; ++v)
            sums[r][v] += from[r][l * along] * packed[static_cast<std::size_t>(l * vectors_at_once + v)];
      for (index_t r = 0; r < rows; ++r) {
        T* const to = c + (row + r) * leading + column;
        for (index_t j = 0; j < columns; ++j) {
          const T product = alpha * sums[r][j / Panel<T>::lanes][j % Panel<T>::lanes];
          to[j] = beta == T(0) ? product : product + beta * to[j];
        }
      }
    }
  }
}
template void multiply(
    index_t, index_t, index_t, float, const Factor<float>&, const Factor<float>&, float, float*, index_t);
template void multiply(
    index_t, index_t, index_t, double, const Factor<double>&, const Factor<double>&, double, double*, index_t);

}  // namespace whence::blas
