// That focus/focus.h is C.
#include "focus/focus.h"

const char* version_by_c(void);
const char* version_by_c(void) { return focus_version(); }
