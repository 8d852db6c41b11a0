# baton_room(<name> SOURCES ... DEPS ...): one static library per room, alias baton::<name>. What a room does not
# list it cannot link, so a wrong include fails at the latest in the linker.
function(baton_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(baton_${name} STATIC ${ARG_SOURCES})
    target_include_directories(baton_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS} PRIVATE baton_options ${ARG_PRIVATE_DEPS})
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
endfunction()

# baton_test(<name> LABEL unit|contract|integration|e2e|golden SOURCES ... DEPS ...): a GoogleTest binary whose
# tests CTest sees one by one. THREADS: several threads meet in what it tests. Its label says so, `baton_thread_tests` builds all
# such binaries, and CI runs them under ThreadSanitizer.
include(GoogleTest)
function(baton_test name)
  cmake_parse_arguments(ARG "THREADS" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # Sanitizers take time, and nothing else than time.
  set(patience)
  if(BATON_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
    set(patience BATON_PATIENCE=4)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_THREADS)
    # One word: lists do not survive gtest_discover_tests.
    string(APPEND ARG_LABEL +threads)
    if(NOT TARGET baton_thread_tests)
      add_custom_target(baton_thread_tests)
    endif()
    add_dependencies(baton_thread_tests ${name})
  endif()
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} GTest::gmock GTest::gtest_main
                        $<TARGET_NAME_IF_EXISTS:baton_tsan_order>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BATON_BINARY_DIR="${PROJECT_BINARY_DIR}"
                             ${patience})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
