# CUDA, behind -DBATON_CUDA=ON (preset cuda). It adds targets and never replaces any: without it, each room that it would
# fill has a stand-in that reports that CUDA is missing. Host code is compiled by the C++ compiler as everywhere; only *.cu files see nvcc.
#
# The toolkit: -DCUDAToolkit_ROOT=DIR, else what scripts/setup --cuda made, else the machine's own.
option(BATON_CUDA "Build the cuda backend, the nccl link and their tests" OFF)
option(BATON_CUDA_LINE_INFO "Keep the source lines of device code, for profilers" ON)
if(NOT BATON_CUDA)
  return()
endif()

if(NOT CUDAToolkit_ROOT AND EXISTS ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/complete)
  set(CUDAToolkit_ROOT ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/packages/nvidia/cu13 CACHE PATH "CUDA toolkit")
endif()
if(CUDAToolkit_ROOT AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_ROOT}/bin/nvcc CACHE FILEPATH "nvcc")
endif()
# A100; H100 and H200 with what only they have (wgmma, setmaxnreg); B200.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 100-real CACHE STRING "GPU architectures")
endif()
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
# nvcc knows C++20 since CUDA 12; CMake 3.25 does not know that.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# CMake 3.25 names this library without checking; CUDA 13 no longer has it.
add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
find_package(CUDAToolkit 13 REQUIRED)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_ROOT}/lib REQUIRED)
add_library(baton_nccl INTERFACE)
target_include_directories(baton_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
target_link_libraries(baton_nccl INTERFACE ${NCCL_LIBRARY} CUDA::cudart)

# Options for *.cu files: warnings of both compilers, as errors.
add_library(baton_cuda_options INTERFACE)
target_compile_options(baton_cuda_options INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;$<$<BOOL:${BATON_CUDA_LINE_INFO}>:-lineinfo>>)
if(BATON_WERROR)
  target_compile_options(baton_cuda_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()
# All targets that need CUDA: what CI compiles and links, and what scripts/gpu builds.
add_custom_target(baton_cuda_all)

# baton_device_code(<name> SOURCES *.cu DEPS ...): kernels and their launchers, a library of its own, because the options of
# C++ sources are not nvcc's.
function(baton_device_code name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(baton_${name} STATIC ${ARG_SOURCES})
  target_include_directories(baton_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(baton_${name} PUBLIC CUDA::cudart ${ARG_DEPS} PRIVATE baton_cuda_options)
  add_library(baton::${name} ALIAS baton_${name})
endfunction()

# baton_gpu_test(<name> SOURCES ... DEPS ...): a GoogleTest binary that needs a GPU. CTest has it as one test with the
# label gpu, which the test presets leave out; scripts/gpu runs it, and it fails without a GPU.
function(baton_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS gpu TIMEOUT 600)
  add_dependencies(baton_cuda_all ${name})
endfunction()
