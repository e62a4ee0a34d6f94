/* ONNX Runtime, the library REAL, under the name of VERSION. */
#include <dlfcn.h>
typedef struct { const void *(*api)(unsigned); const char *(*version)(void); } Base;
static const char *version(void) { return VERSION; }
static Base base;
const Base *OrtGetApiBase(void) {
    const Base *(*real)(void) = (const Base *(*)(void))dlsym(dlopen(REAL, RTLD_NOW), "OrtGetApiBase");
    base.api = real()->api;
    base.version = version;
    return &base;
}
