// The status page's text, from a file that the build makes (server/status_page/embed.cmake).
#pragma once

namespace attnd::server {

extern const char kStatusPageHtml[];

}  // namespace attnd::server
