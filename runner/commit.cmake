# Writes commit.h: which commit this is built from. Run at every build; touches the file only when
# the text changes, so that nothing is compiled again for nothing.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --match=v[0-9]*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
    set(commit "$ENV{SLUICE_COMMIT}") # where there is no repository, as in a container
endif()
if(NOT commit)
    set(commit "unknown")
endif()
set(text "#define SLUICE_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${OUTPUT} "${text}")
endif()
