# The project's own CMake functions. Every folder uses these three and nothing else:
#   regroup_library(NAME SOURCES ... HEADERS ... DEPS ... [INSTALL])   static library regroup::NAME
#   regroup_program(NAME SOURCES ... DEPS ... [INSTALL])               executable build/bin/NAME
#   regroup_test(NAME SOURCES ... DEPS ... [TIMEOUT seconds])          GoogleTest, one CTest, label = its folder in tests/
# DEPS are targets: `regroup::core`, `Threads::Threads`. Paths are relative to the calling folder.
# INSTALL makes a library part of `find_package(Regroup)` and regroup.pc, a program part of PREFIX/bin.
include_guard(GLOBAL)

# Sources include from the repository root: "core/status.h".
function(regroup_library NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "INSTALL" "" "SOURCES;HEADERS;DEPS")
  set(target regroup_${NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(regroup::${NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:regroup_options>)
  if(ARG_INSTALL)
    set_property(GLOBAL APPEND PROPERTY REGROUP_INSTALLED ${NAME})
    install(TARGETS ${target} EXPORT RegroupTargets COMPONENT devel
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET HEADERS DESTINATION ${REGROUP_INSTALL_INCLUDEDIR})
  endif()
endfunction()

function(regroup_program NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "INSTALL" "" "SOURCES;DEPS")
  add_executable(${NAME} ${ARG_SOURCES})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} regroup_options)
  if(ARG_INSTALL)
    install(TARGETS ${NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endfunction()

# Runs in the repository root, with build/bin first in PATH and in REGROUP_BIN_DIR.
function(regroup_test NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "SOURCES;DEPS")
  regroup_program(${NAME} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  add_test(NAME ${NAME} COMMAND ${NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  regroup_test_properties(${NAME} ${ARG_TIMEOUT})
endfunction()

# Label, time limit (default 120 s; five times that with ThreadSanitizer or under an emulator, twice with AddressSanitizer) and environment of a CTest that add_test() has just added.
function(regroup_test_properties NAME)
  set(timeout 120)
  if(ARGC GREATER 1)
    set(timeout ${ARGV1})
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread" OR CMAKE_CROSSCOMPILING)
    math(EXPR timeout "${timeout} * 5")  # ten times as slow, and two tests at a time
  elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    math(EXPR timeout "${timeout} * 2")
  endif()
  file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${timeout} LABELS "${label}"
    ENVIRONMENT "REGROUP_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
    ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endfunction()
