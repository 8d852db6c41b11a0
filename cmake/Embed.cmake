# Writes ${OUTPUT}, the source of ${HEADER}: files as text, by name, in a table. Run as:
#   cmake -D OUTPUT= -D HEADER= -D NAMESPACE= -D FILES=a|b|c -P Embed.cmake
string(REPLACE "|" ";" files "${FILES}")
set(rows "")
foreach(path ${files})
  get_filename_component(name ${path} NAME)
  file(READ ${path} text)
  string(APPEND rows "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {

const std::vector<EmbeddedFile>& EmbeddedFiles() {
  static const std::vector<EmbeddedFile> files = {
${rows}  };
  return files;
}

}  // namespace ${NAMESPACE}
")
