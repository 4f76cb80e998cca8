/* Stands in for PyTorch's libraries, against which LMCache's adapter is linked without using anything of them, and has what the adapter wants of
   GCC 13's C++ library, which Debian 12 has not: std::string::_M_replace_cold, which replaces a part of a text that the new part may lie in. */

#include <stdlib.h>
#include <string.h>

void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm(void *text, char *part, size_t old_len, const char *by,
                                                                                     size_t new_len, size_t behind) {
    (void)text;
    char *copy = malloc(new_len + 1);
    if (!copy)
        abort();
    memcpy(copy, by, new_len);
    memmove(part + new_len, part + old_len, behind);
    memcpy(part, copy, new_len);
    free(copy);
}
