# Makes OUT, a C++ source, of the status page's files in DIR: cmake -DDIR=... -DOUT=... -P embed.cmake
file(READ ${DIR}/style.css STYLE)
set(SCRIPT "")
foreach(name metrics.js charts.js sessions.js page.js)
  file(READ ${DIR}/${name} part)
  string(APPEND SCRIPT "${part}")
endforeach()
configure_file(${DIR}/page.html ${OUT}.html @ONLY)
file(READ ${OUT}.html html)
file(WRITE ${OUT} "// Made by server/status_page/embed.cmake.
#include \"server/status_page_html.h\"

namespace attnd::server {

const char kStatusPageHtml[] = R\"attnd_page(${html})attnd_page\";

}  // namespace attnd::server
")
