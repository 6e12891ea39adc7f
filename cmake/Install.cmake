# Installs `find_package(Regroup)` and regroup.pc for the libraries declared with INSTALL.
# Included last by the root, when every folder has spoken.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Regroup)
configure_package_config_file(cmake/RegroupConfig.cmake.in RegroupConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(RegroupConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RegroupConfig.cmake ${PROJECT_BINARY_DIR}/RegroupConfigVersion.cmake
  DESTINATION ${config_dir} COMPONENT devel)
install(EXPORT RegroupTargets NAMESPACE regroup:: DESTINATION ${config_dir} COMPONENT devel)

# A static library goes before the ones it uses: the reverse of the order of the folders.
get_property(names GLOBAL PROPERTY REGROUP_INSTALLED)
list(REVERSE names)
list(TRANSFORM names PREPEND "-lregroup_" OUTPUT_VARIABLE libs)
list(JOIN libs " " REGROUP_PC_LIBS)
file(RELATIVE_PATH REGROUP_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # the tree may be moved
configure_file(cmake/regroup.pc.in regroup.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/regroup.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)
