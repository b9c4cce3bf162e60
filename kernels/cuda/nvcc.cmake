# nvcc as a language of CMake 3.25, and a library of kernels. For the whole project and for
# tests/gpu, which is a project of its own.

# Debian's CMake does not look in /usr/local/cuda/bin.
if(EXISTS /usr/local/cuda/bin/nvcc AND NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
# Machine code alone, no PTX: a card that is not listed is refused when it is opened.
set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100a-real CACHE STRING
  "Architectures that the kernels are compiled for")

# Sets ATTND_NVCC to whether there is a CUDA compiler; it is then enabled.
macro(attnd_find_nvcc)
  include(CheckLanguage)
  check_language(CUDA)
  set(ATTND_NVCC OFF)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O3")  # as the C++ ones: no NDEBUG
    enable_language(CUDA)
    # CMake 3.25 does not know how nvcc is asked for C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_STANDARD 20)
    # Debian's CMake asks for a library that CUDA 13 no longer has, and fails without its target.
    if(NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit REQUIRED)  # cudart and cuBLAS
    set(ATTND_NVCC ON)
  endif()
endmacro()

# A static library of kernels (.cu) and plain C++. nvcc sees an object library, so that what links
# the static one is linked by the C++ compiler. What ptxas says of a file lies beside its object, in
# FILE.o.ptxas. Warnings are errors unless ATTND_WARNINGS_ONLY is set: for compilers that are not known
# beforehand.
function(attnd_cuda_library target include)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set(plain ${ARGN})
  list(FILTER plain EXCLUDE REGEX "\\.cu$")
  add_library(${target}_objects OBJECT ${kernels})
  set_target_properties(${target}_objects PROPERTIES
    CUDA_STANDARD 20
    CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/keep_ptxas)
  target_include_directories(${target}_objects PRIVATE ${include})
  target_compile_options(${target}_objects PRIVATE
    -Xptxas=-v -Xcompiler=-Wall,-Wextra)
  if(NOT ATTND_WARNINGS_ONLY)
    target_compile_options(${target}_objects PRIVATE -Werror=all-warnings)
  endif()
  add_library(${target} STATIC ${plain} $<TARGET_OBJECTS:${target}_objects>)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${target} PUBLIC ${include})
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
