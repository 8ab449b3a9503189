# Finds OpenBLAS as whence::openblas, for this build and for programs that use an installed whence. It looks for the library itself, because
# the CMake package of a distribution may name one that is not there (Debian 13). No header of it is needed (blas.cpp).
set(whence_openblas_missing "OpenBLAS: not found; whence multiplies matrices with it; install it: sudo apt-get install libopenblas-openmp-dev \
(elsewhere: install OpenBLAS and name its library in WHENCE_OPENBLAS)")
if(NOT TARGET whence::openblas)
  if(NOT CMAKE_CROSSCOMPILING)
    find_package(PkgConfig QUIET)  # knows unusual folders of this machine
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(whence_openblas QUIET openblas)
    endif()
  endif()
  find_library(WHENCE_OPENBLAS NAMES openblas openblaso openblasp HINTS ${whence_openblas_LIBRARY_DIRS} PATH_SUFFIXES openblas-openmp openblas-pthread)
  if(WHENCE_OPENBLAS)
    add_library(whence::openblas UNKNOWN IMPORTED GLOBAL)
    set_target_properties(whence::openblas PROPERTIES IMPORTED_LOCATION "${WHENCE_OPENBLAS}")
  endif()
endif()
