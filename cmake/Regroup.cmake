# The project's own CMake functions. Every folder uses these and nothing else:
#   regroup_library(NAME SOURCES ... HEADERS ... [SCHEMAS ...] DEPS ... [ALONE ...] [INSTALL])   static library
#       regroup::NAME; of each schema NAME.fbs flatc makes a header, included as "folder/NAME_generated.h"
#   regroup_program(NAME SOURCES ... DEPS ... [TEST] [INSTALL])   executable build/bin/NAME; TEST: build/tests/bin/NAME
#   regroup_require(FEATURE FOUND NEEDS DEBIAN)   stops the configuration where FOUND is false
#   regroup_test(NAME SOURCES ... DEPS ... [ALONE ...] [TIMEOUT seconds] [OPTIMIZED])   GoogleTest; each case is one
#       CTest; OPTIMIZED: compiled like what is shipped, for tests that compute much themselves
# DEPS are targets: `regroup::base`, `Threads::Threads`. Paths are relative to the calling folder.
# INSTALL makes a library part of `find_package(Regroup)` and regroup.pc, a program part of PREFIX/bin.
# Sources include from the repository root: "base/status.h". They are compiled in groups of REGROUP_UNITY, each
# group one translation unit (docs/design/build.md); those named by ALONE are not.
include_guard(GLOBAL)

# Stops, naming the package, where FEATURE is on and what it needs was not FOUND: a feature never vanishes in silence.
# FEATURE "": nothing is built without it.
function(regroup_require FEATURE FOUND NEEDS DEBIAN)
  if(FOUND)
    return()
  endif()
  set(reason "${NEEDS} not found. Install it (Debian: ${DEBIAN})")
  if(FEATURE)
    set(reason "${FEATURE}: ${reason} or switch the feature off by name: -D${FEATURE}=OFF")
  endif()
  message(FATAL_ERROR "${reason}")
endfunction()

set(REGROUP_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)

# Tests are compiled in groups of at most so many in all presets, so that names that clash in a group of a sanitizer
# clash in preset dev, too.
set(REGROUP_TEST_UNITY 6)

# Sets OUT to what is compiled for SOURCES. A group's file names its sources relative to the repository root, so that
# ccache finds the same content in another clone.
function(regroup_group_sources OUT NAME SOURCES ALONE)
  set(grouped)
  set(result)
  foreach(source IN LISTS SOURCES)
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${path})
    if(REGROUP_UNITY GREATER 1 AND NOT source IN_LIST ALONE AND EXISTS ${path} AND NOT path MATCHES "^${PROJECT_BINARY_DIR}/")
      list(APPEND grouped ${relative})
    else()
      list(APPEND result ${path})
    endif()
  endforeach()
  list(LENGTH grouped count)
  math(EXPR groups "(${count} + ${REGROUP_UNITY} - 1) / ${REGROUP_UNITY}")
  if(count)
    foreach(group RANGE 1 ${groups})
      math(EXPR first "(${group} - 1) * ${count} / ${groups}")
      math(EXPR size "${group} * ${count} / ${groups} - ${first}")
      list(SUBLIST grouped ${first} ${size} members)
      list(TRANSFORM members REPLACE "(.+)" "#include \"\\1\"")
      list(JOIN members "\n" content)
      set(file ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_${group}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "${content}\n" @ONLY)
      list(APPEND result ${file})
    endforeach()
  endif()
  set(${OUT} ${result} PARENT_SCOPE)
endfunction()

# One line, which tools/dev/lint.sh reads, too.
set(REGROUP_FLATC_FILE ${CMAKE_CURRENT_LIST_DIR}/flatc.options)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${REGROUP_FLATC_FILE})
file(STRINGS ${REGROUP_FLATC_FILE} REGROUP_FLATC_OPTIONS)
separate_arguments(REGROUP_FLATC_OPTIONS)

# Sets OUT to the headers that flatc makes of SCHEMAS.
function(regroup_generate_headers OUT SCHEMAS)
  set(headers)
  foreach(schema IN LISTS SCHEMAS)
    get_filename_component(path ${schema} ABSOLUTE)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${path})
    get_filename_component(name ${folder} NAME_WE)
    get_filename_component(folder ${folder} DIRECTORY)
    set(header ${REGROUP_GENERATED_DIR}/${folder}/${name}_generated.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${FLATC} ${REGROUP_FLATC_OPTIONS} -o ${REGROUP_GENERATED_DIR}/${folder} ${path}
      DEPENDS ${path} VERBATIM)
    list(APPEND headers ${header})
  endforeach()
  set(${OUT} ${headers} PARENT_SCOPE)
endfunction()

function(regroup_library NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "INSTALL" "" "SOURCES;HEADERS;SCHEMAS;DEPS;ALONE")
  set(target regroup_${NAME})
  regroup_group_sources(sources ${target} "${ARG_SOURCES}" "${ARG_ALONE}")
  add_library(${target} STATIC ${sources})
  add_library(regroup::${NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME} REGROUP_SOURCES "${ARG_SOURCES}")
  target_sources(${target} PRIVATE ${ARG_HEADERS})
  regroup_generate_headers(generated "${ARG_SCHEMAS}")
  target_sources(${target} PRIVATE ${generated})
  if(generated)  # who includes them waits for them
    add_custom_target(${target}_headers DEPENDS ${generated})
    add_dependencies(${target} ${target}_headers)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${REGROUP_GENERATED_DIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC regroup::headers ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:regroup_options>)
  if(ARG_INSTALL)
    set_property(GLOBAL APPEND PROPERTY REGROUP_INSTALLED ${NAME})
    install(TARGETS ${target} EXPORT RegroupTargets COMPONENT devel
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

function(regroup_program NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "INSTALL;TEST" "" "SOURCES;DEPS;ALONE")
  if(ARG_TEST AND REGROUP_UNITY GREATER REGROUP_TEST_UNITY)
    set(REGROUP_UNITY ${REGROUP_TEST_UNITY})
  endif()
  regroup_group_sources(sources ${NAME} "${ARG_SOURCES}" "${ARG_ALONE}")
  add_executable(${NAME} ${sources})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} regroup_options)
  if(ARG_TEST)
    set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  endif()
  if(ARG_INSTALL)
    set_property(GLOBAL APPEND PROPERTY REGROUP_PROGRAMS ${NAME})
    install(TARGETS ${NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endfunction()

# Cases run in the repository root, with build/bin first in PATH and in REGROUP_BIN_DIR.
function(regroup_test NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "OPTIMIZED" "TIMEOUT" "SOURCES;DEPS;ALONE")
  regroup_program(${NAME} TEST SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(NOT ARG_OPTIMIZED)
    target_compile_options(${NAME} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)  # a third less time than with -O2
  endif()
  gtest_discover_tests(${NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    TEST_LIST ${NAME}_cases)
  regroup_test_environment(variables)
  regroup_test_timeout(timeout ${ARG_TIMEOUT})
  file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_properties.cmake @ONLY CONTENT [[
foreach(case IN LISTS @NAME@_cases)
  set_tests_properties(${case} PROPERTIES TIMEOUT @timeout@ LABELS "@label@"
    ENVIRONMENT "@variables@" ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:@CMAKE_RUNTIME_OUTPUT_DIRECTORY@")
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_properties.cmake)
endfunction()

function(regroup_test_environment OUT)
  set(${OUT} "REGROUP_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0" PARENT_SCOPE)
endfunction()

# Seconds of a test (default 120): five times that with ThreadSanitizer or under an emulator, twice with
# AddressSanitizer.
function(regroup_test_timeout OUT)
  set(timeout 120)
  if(ARGC GREATER 1)
    set(timeout ${ARGV1})
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread" OR CMAKE_CROSSCOMPILING)
    math(EXPR timeout "${timeout} * 5")  # ten times as slow, and two tests at a time
  elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    math(EXPR timeout "${timeout} * 2")
  endif()
  set(${OUT} ${timeout} PARENT_SCOPE)
endfunction()

# Label, time limit and environment of a CTest that add_test() has just added.
function(regroup_test_properties NAME)
  regroup_test_timeout(timeout ${ARGN})
  regroup_test_environment(variables)
  file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${timeout} LABELS "${label}" ENVIRONMENT "${variables}"
    ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endfunction()
