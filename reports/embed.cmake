# Makes a C file of a text file: cmake -DINPUT=a.css -DNAME=a_css -DOUTPUT=a.c -P embed.cmake
# NAME[] is the text, NUL-terminated; NAME_sha256 the SHA-256 of it in hexadecimal digits.
file(READ ${INPUT} bytes HEX)
file(SHA256 ${INPUT} digest)
string(REGEX REPLACE "(................................................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made by embed.cmake. */\nextern const char ${NAME}[], ${NAME}_sha256[];\n"
    "const char ${NAME}[] = {\n    ${bytes}0};\nconst char ${NAME}_sha256[] = \"${digest}\";\n")
