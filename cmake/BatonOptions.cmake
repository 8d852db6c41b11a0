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

# The cache's keys contain no path of this checkout: another clone, at another place, reuses the objects of this one.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
endif()
# Most of a build's time goes into parsing and instantiating the headers of gRPC, Protobuf and Abseil, so the sources of a target are
# compiled some at a time, in one translation unit. The presets dev and clang compile each file alone, which shows missing
# includes.
option(BATON_UNITY "Compile several sources of a target together" ON)
# baton_compile_together(<target>): does so, if the target has more than one source.
function(baton_compile_together target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(BATON_UNITY AND count GREATER 1)
    # As few units as ten sources each allow, of one size: an edit compiles no more of them than it must.
    math(EXPR units "(${count} + 9) / 10")
    math(EXPR batch "(${count} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # A source that is included by a unit keeps its anonymous namespaces: there is one such unit.
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
endfunction()
# GCC collects no garbage below this much memory (KiB): the largest unit takes about a gigabyte, and collecting takes a third of the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:--param=ggc-min-heapsize=2097152>)
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_link_options(-fuse-ld=mold)
endif()

# UBSan's check of virtual calls reads an object through a pipe. A target whose tests use up all file descriptors does without it: no
# pipe can be made then, and every object looks invalid.
function(baton_without_vptr_check target)
  if(BATON_SANITIZE MATCHES undefined)
    target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
  endif()
endfunction()
