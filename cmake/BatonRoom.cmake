# The target that scripts/test builds: the product's binaries, and the tests that it runs. The default build is those and the tests that
# run at night alone; benchmarks are built by name, or all of them by `baton_benches`.
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
# tests CTest sees one by one. THREADS: several threads meet in the tested code. Its label says so, `baton_thread_tests_PART` builds all
# such binaries, and ThreadSanitizer's section of scripts/nightly runs them. APART: as for baton_room. ALONE: none of its tests runs beside another one.
# COST says in one more word of the label when the tests run. scripts/test runs fast (no socket, no process, no clock; the default of unit,
# contract, golden and fuzz), net (sockets in one process; the default of integration) and proc (starts processes; one test at a time);
# scripts/nightly and `scripts/test --all` run night (the default of e2e and fault), too. Two filters of GoogleTest pick tests of another cost than the
# target's: SMOKE, which are proc, and WALL, which are night and alone on the machine, because their claim is a bound in real time.
include(GoogleTest)
function(baton_test name)
  cmake_parse_arguments(ARG "ALONE;THREADS;APART" "COST;LABEL;SMOKE;TIMEOUT;WALL" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_COST)
    set(ARG_COST fast)
    if(ARG_LABEL STREQUAL "integration")
      set(ARG_COST net)
    elseif(ARG_LABEL MATCHES "^(e2e|fault)$")
      set(ARG_COST night)
    endif()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # The last word of the label: the part of the product that is tested, which is the folder behind the level's. `baton_tests_PART` builds
  # all that scripts/nightly runs of it under a sanitizer.
  file(RELATIVE_PATH part ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^(unit|integration|contract)/" "" part ${part})
  string(REGEX REPLACE "/.*" "" part ${part})
  if(NOT TARGET baton_tests_${part})
    add_custom_target(baton_tests_${part})
  endif()
  # Sanitizers only make tests slower. BATON_PATIENCE (tests/CMakeLists.txt) is the same factor.
  if(BATON_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_SMOKE OR NOT ARG_COST STREQUAL "night")
    add_dependencies(baton_gate_tests ${name})
  endif()
  add_dependencies(baton_tests_${part} ${name})
  if(ARG_THREADS)
    # One word: lists do not survive gtest_discover_tests.
    string(APPEND ARG_LABEL +threads)
    if(NOT TARGET baton_thread_tests_${part})
      add_custom_target(baton_thread_tests_${part})
    endif()
    add_dependencies(baton_thread_tests_${part} ${name})
  endif()
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} GTest::gmock GTest::gtest_main baton_test_process
                        $<TARGET_NAME_IF_EXISTS:baton_tsan_order>)
  baton_test_paths(${name})
  if(NOT ARG_APART)
    baton_compile_together(${name})
  endif()
  baton_wiring(${name})  # the time is spent in the tested code
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(others)
  if(ARG_SMOKE)
    list(APPEND others ${ARG_SMOKE})
    baton_discover_tests(${name} proc "${ARG_SMOKE}")
  endif()
  if(ARG_WALL)
    list(APPEND others ${ARG_WALL})
    baton_discover_tests(${name} wall "${ARG_WALL}")
  endif()
  list(JOIN others ":" others)
  baton_discover_tests(${name} ${ARG_COST} "-${others}")
endfunction()

# For baton_test, in whose scope it runs: the tests that the filter picks have the cost.
macro(baton_discover_tests name cost filter)
  set(alone)
  if("${cost}" STREQUAL "proc")
    set(alone PROCESSORS 2)  # ctest runs two at a time
  elseif("${cost}" STREQUAL "wall" OR ARG_ALONE)
    set(alone RUN_SERIAL ON)
  endif()
  gtest_discover_tests(${name} TEST_FILTER "${filter}" DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${ARG_LABEL}+${cost}@${part} TIMEOUT ${ARG_TIMEOUT} ${alone})
endmacro()
