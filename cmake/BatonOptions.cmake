# Compiler settings that every target of this tree shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(baton_options INTERFACE)
target_compile_options(baton_options INTERFACE -Wall -Wextra -Wno-unused-parameter
                       -Wno-missing-field-initializers)
# Floating point contraction is off: a fused multiply-add is written where it is meant, so that every
# instruction set computes the same bits.
target_compile_options(baton_options INTERFACE -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(baton_options INTERFACE -Wthread-safety)
endif()
if(BATON_WERROR)
  target_compile_options(baton_options INTERFACE -Werror)
endif()
if(BATON_SANITIZE)
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${BATON_SANITIZE})
  if(BATON_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Rooms report their coverage to the fuzzer and their memory errors to AddressSanitizer; tests/fuzz links the driver.
if(BATON_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "BATON_FUZZ needs Clang: use the preset clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=address,undefined)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_link_options(-fuse-ld=mold)
endif()
