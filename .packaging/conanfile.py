"""conan create .packaging: builds the tree around this file. OpenBLAS, nlohmann-json and a compiler come from the system."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Whence(ConanFile):
    name = "whence"
    license = "MIT"
    description = "Tensors, gradients and positional encodings that can be looked into"
    settings = "os", "arch", "compiler", "build_type"
    package_type = "static-library"

    def _root(self):
        return os.path.dirname(self.recipe_folder)

    def set_version(self):
        text = load(self, os.path.join(self._root(), "CMakeLists.txt"))
        self.version = text.split("project(whence VERSION ")[1].split()[0]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "tensor/*", "autograd/*", "nn/*", "cuda/*", "examples/*", ".packaging/packages.cmake"):
            copy(self, pattern, self._root(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["WHENCE_TESTS"] = "OFF"
        toolchain.cache_variables["WHENCE_CPU"] = "avx2"  # a package must run on other machines
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="whence")

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package's own whenceConfig.cmake links the whole archive. The one that conan generates would not.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/whence"]
