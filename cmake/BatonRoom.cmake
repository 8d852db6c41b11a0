# What scripts/test builds: the product's binaries, and all that the tests run. The default build is that, too; benchmarks
# are built by name, or all of them by `baton_benches`.
add_custom_target(baton_gate_tests)

# baton_wiring(<target>): no time is spent in it, only in what it calls. Release compiles it with -O1, in about half of the time.
function(baton_wiring target)
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# baton_room(<name> SOURCES ... DEPS ...): one static library per room, alias baton::<name>. A room can't link
# rooms that it does not list, so a wrong include fails at the latest in the linker. WIRING: as baton_wiring says. APART: each source is
# compiled alone (if one of its objects must stay out of a link).
function(baton_room name)
  cmake_parse_arguments(ARG "APART;WIRING" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(baton_${name} STATIC ${ARG_SOURCES})
    target_include_directories(baton_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS} PRIVATE baton_options ${ARG_PRIVATE_DEPS})
    if(NOT ARG_APART)
      baton_compile_together(baton_${name})
    endif()
    if(ARG_WIRING)
      baton_wiring(baton_${name})
    endif()
  else()
    add_library(baton_${name} INTERFACE)
    target_include_directories(baton_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(baton_${name} INTERFACE ${ARG_DEPS})
  endif()
  add_library(baton::${name} ALIAS baton_${name})
endfunction()

# baton_binary(<name> SOURCES ... DEPS ...): an executable in build/<preset>/bin.
function(baton_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} $<TARGET_NAME_IF_EXISTS:baton_tsan_order>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  baton_compile_together(${name})
  # A binary's own sources are flags and wiring; the work is done in rooms.
  baton_wiring(${name})
  add_dependencies(baton_gate_tests ${name})
endfunction()

# baton_test_paths(<target>): what names the source folder and the build folder in tests. A test runs in the source folder
# (tests/source_folder.cc), so its paths are relative and the compiler cache serves any clone.
function(baton_test_paths target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  file(RELATIVE_PATH binary ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_definitions(${target} PRIVATE BATON_SOURCE_DIR="." BATON_BINARY_DIR="${binary}")
endfunction()

# baton_test(<name> LABEL unit|contract|integration|e2e|golden SOURCES ... DEPS ...): a GoogleTest binary whose
# tests CTest sees one by one. THREADS: several threads meet in the tested code. Its label says so, `baton_thread_tests` builds all
# such binaries, and CI runs them under ThreadSanitizer. APART: as for baton_room.
include(GoogleTest)
function(baton_test name)
  cmake_parse_arguments(ARG "THREADS;APART" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # Sanitizers only make tests slower. BATON_PATIENCE (tests/CMakeLists.txt) is the same factor.
  if(BATON_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(baton_gate_tests ${name})
  if(NOT ARG_LABEL STREQUAL "e2e")
    if(NOT TARGET baton_room_tests)
      add_custom_target(baton_room_tests)
    endif()
    add_dependencies(baton_room_tests ${name})
  endif()
  if(ARG_THREADS)
    # One word: lists do not survive gtest_discover_tests.
    string(APPEND ARG_LABEL +threads)
    if(NOT TARGET baton_thread_tests)
      add_custom_target(baton_thread_tests)
    endif()
    add_dependencies(baton_thread_tests ${name})
  endif()
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} GTest::gmock GTest::gtest_main baton_source_folder
                        $<TARGET_NAME_IF_EXISTS:baton_tsan_order>)
  baton_test_paths(${name})
  if(NOT ARG_APART)
    baton_compile_together(${name})
  endif()
  baton_wiring(${name})  # the time is spent in the tested code
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
