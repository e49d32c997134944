# cmake -DOUTPUT=page_files.cc -DFILES=a.css;b.js -P embed_files.cmake
# Writes the source file that has what server/ui/page_files.h declares: FILES, of the folder that
# this runs in, as raw strings.
set(source "#include \"server/ui/page_files.h\"\n\nnamespace atom::server {\n\n")
string(APPEND source "std::span<const PageFile> page_files() {\n")
string(APPEND source "  static constexpr PageFile kFiles[] = {\n")
foreach(name IN LISTS FILES)
  file(READ "${name}" text)
  string(FIND "${text}" ")page\"" mark)
  if(NOT mark EQUAL -1)
    message(FATAL_ERROR "${name} has the characters that end a raw string: )page\"")
  endif()
  string(APPEND source "      {\"${name}\", R\"page(${text})page\"},\n")
endforeach()
string(APPEND source "  };\n  return kFiles;\n}\n\n}  // namespace atom::server\n")
file(WRITE "${OUTPUT}" "${source}")
