# find_package(sluice-wal): the target sluice::wal, and sluice::wal_shared if it was installed.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(PkgConfig)
if(NOT TARGET PkgConfig::XXHASH)
    pkg_check_modules(XXHASH QUIET IMPORTED_TARGET libxxhash)
    if(NOT TARGET PkgConfig::XXHASH)
        set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
        set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
            "sluice-wal needs xxHash: pkg-config finds no libxxhash")
        return()
    endif()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/sluice-wal-targets.cmake)
