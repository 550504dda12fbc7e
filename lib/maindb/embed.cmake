# Turns a text file into a C string literal, line by line: cmake -DIN=a.sql -DOUT=a.c -DNAME=text -P
file(READ ${IN} text)
string(REPLACE "\\" "\\\\" text "${text}")
string(REPLACE "\"" "\\\"" text "${text}")
string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
file(WRITE ${OUT} "extern const char ${NAME}[];\nconst char ${NAME}[] =\n    \"${text}\";\n")
