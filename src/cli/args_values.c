/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sizes and durations as people write them. */
#include <string.h>
#include <strings.h>

#include "cli/args.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Digits at the start of text: how many there are, 0 when there are none or the number does not fit. */
static size_t digits(const char *text, uint64_t *ret) {
    uint64_t n = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        if (__builtin_mul_overflow(n, UINT64_C(10), &n)) return 0;
        if (__builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n)) return 0;
    }
    *ret = n;
    return i;
}

bool cli_parse_u64(const char *text, uint64_t *ret) {
    size_t n = digits(text, ret);
    return n > 0 && text[n] == '\0';
}

static const struct unit *find_unit(const struct unit *units, const char *name, size_t n) {
    for (; units->name != NULL; units++)
        if (strlen(units->name) == n && strncasecmp(units->name, name, n) == 0) return units;
    return NULL;
}

/* The part behind the point of "1.5G", in units: at most nine digits count. */
static size_t fraction(const char *text, uint64_t factor, uint64_t *ret) {
    uint64_t part = 0;
    uint64_t scale = 1;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        if (i >= 9) continue;
        part = part * 10 + (uint64_t)(text[i] - '0');
        scale *= 10;
    }
    *ret = (uint64_t)((long double)factor * (long double)part / (long double)scale);
    return i;
}

static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"kB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
    {NULL, 0},
};

bool cli_parse_bytes(const char *text, uint64_t *ret) {
    uint64_t whole = 0;
    uint64_t part = 0;
    size_t n = digits(text, &whole);
    if (n == 0) return false;
    size_t point = text[n] == '.' ? n + 1 + strspn(text + n + 1, "0123456789") : n;
    if (point == n + 1) return false;
    const char *name = text + point;
    if (*name == ' ') name++;
    const struct unit *unit = find_unit(byte_units, name, strlen(name));
    if (unit == NULL || (point > n && unit->factor == 1)) return false;
    if (point > n) (void)fraction(text + n + 1, unit->factor, &part);
    uint64_t bytes;
    if (__builtin_mul_overflow(whole, unit->factor, &bytes) || __builtin_add_overflow(bytes, part, &bytes))
        return false;
    *ret = bytes;
    return true;
}

bool cli_parse_duration(const char *text, uint64_t *ret_ms) {
    static const struct unit units[] = {
        {"ms", 1},          {"s", 1000},       {"sec", 1000},       {"m", 60000},         {"min", 60000},
        {"h", 3600000},     {"hour", 3600000}, {"hours", 3600000},  {"d", 86400000},      {"day", 86400000},
        {"days", 86400000}, {"w", 604800000},  {"week", 604800000}, {"weeks", 604800000}, {NULL, 0},
    };
    uint64_t sum = 0;
    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return true;
    }
    if (*text == '\0') return false;
    while (*text != '\0') {
        uint64_t n = 0;
        size_t used = digits(text, &n);
        if (used == 0) return false;
        size_t letters = strcspn(text + used, "0123456789");
        const struct unit *unit = find_unit(units, text + used, letters);
        if (unit == NULL || __builtin_mul_overflow(n, unit->factor, &n) || __builtin_add_overflow(sum, n, &sum))
            return false;
        text += used + letters;
    }
    if (sum == UINT64_MAX) return false;
    *ret_ms = sum;
    return true;
}
