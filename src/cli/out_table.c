/* SPDX-License-Identifier: Apache-2.0 */
/* Tables whose columns line up, and text of others that cannot harm a terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/out.h"

size_t cli_utf8(const char *text, size_t n, uint32_t *ret_cp) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (n == 0) return 0;
    unsigned char lead = (unsigned char)text[0];
    size_t len = lead < 0x80 ? 1 : lead >= 0xf0 && lead < 0xf8 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : 2;
    if ((lead >= 0x80 && lead < 0xc2) || lead >= 0xf8 || len > n) return 0;
    uint32_t cp = len == 1 ? lead : lead & (0xffU >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c & 0xc0) != 0x80) return 0;
        cp = cp << 6 | (c & 0x3fU);
    }
    if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return 0;
    *ret_cp = cp;
    return len;
}

/* Characters that move the cursor, end a line or turn the direction of what follows. */
static bool harmful(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c || cp == 0x200e || cp == 0x200f || cp == 0x2028 ||
           cp == 0x2029 || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

void cli_buf_escaped(struct cli_buf *b, const char *text) {
    size_t n = strlen(text);
    cli_buf_add(b, "", 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = cli_utf8(text + i, n - i, &cp);
        if (len == 0)
            cli_buf_printf(b, "\\x%02x", (unsigned)(unsigned char)text[i]);
        else if (cp == '\\')
            cli_buf_add(b, "\\\\", 2);
        else if (cp == '\n')
            cli_buf_add(b, "\\n", 2);
        else if (cp == '\t')
            cli_buf_add(b, "\\t", 2);
        else if (cp == '\r')
            cli_buf_add(b, "\\r", 2);
        else if (harmful(cp))
            cli_buf_printf(b, cp < 0x80 ? "\\x%02x" : "\\u{%x}", cp);
        else
            cli_buf_add(b, text + i, len);
        i += len != 0 ? len : 1;
    }
}

size_t cli_width(const char *text) {
    size_t n = strlen(text);
    size_t columns = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = cli_utf8(text + i, n - i, &cp);
        int width = len != 0 ? wcwidth((wchar_t)cp) : 1;
        columns += width >= 0 ? (size_t)width : 1;
        i += len != 0 ? len : 1;
    }
    return columns;
}

void cli_print_escaped(const char *text) {
    struct cli_buf b = {0};
    cli_buf_escaped(&b, text);
    (void)fputs(b.data, stdout);
    cli_buf_fini(&b);
}

static void table_take(struct cli_table *t, char *cell) {
    if (t->count == t->cap) {
        t->cap = t->cap != 0 ? t->cap * 2 : 64;
        t->cells = cli_realloc(t->cells, t->cap, sizeof *t->cells);
    }
    t->cells[t->count++] = cell;
}

void cli_table_init(struct cli_table *t, size_t columns, const char *const *heads) {
    *t = (struct cli_table){.columns = columns};
    for (size_t c = 0; c < columns; c++) table_take(t, cli_strdup(heads[c]));
}

void cli_table_cell(struct cli_table *t, const char *fmt, ...) {
    char small[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    table_take(t, cli_strdup(small));
}

void cli_table_name(struct cli_table *t, const char *text) {
    struct cli_buf b = {0};
    cli_buf_escaped(&b, text[0] != '\0' ? text : "-");
    table_take(t, b.data);
}

static const char *cell_text(const struct cli_table *t, size_t i) {
    return i < t->columns && t->cells[i][0] == '>' ? t->cells[i] + 1 : t->cells[i];
}

static void pad(size_t columns) {
    for (; columns > 0; columns--) (void)fputc(' ', stdout);
}

/* One row; blanks at its end are not printed. */
static void print_row(const struct cli_table *t, size_t row, const size_t *widths) {
    size_t owed = 0;
    for (size_t c = 0; c < t->columns; c++) {
        const char *text = cell_text(t, row * t->columns + c);
        size_t slack = widths[c] - cli_width(text);
        bool right = t->cells[c][0] == '>';
        if (c > 0) owed += 2;
        if (text[0] != '\0') {
            pad(owed + (right ? slack : 0));
            (void)fputs(text, stdout);
            owed = right ? 0 : slack;
        } else {
            owed += widths[c];
        }
    }
    (void)fputc('\n', stdout);
}

void cli_table_print(const struct cli_table *t) {
    size_t *widths = cli_calloc(t->columns, sizeof *widths);
    for (size_t i = 0; i < t->count; i++) {
        size_t width = cli_width(cell_text(t, i));
        if (width > widths[i % t->columns]) widths[i % t->columns] = width;
    }
    for (size_t row = 0; row * t->columns < t->count; row++) print_row(t, row, widths);
    free(widths);
}

void cli_table_fini(struct cli_table *t) {
    for (size_t i = 0; i < t->count; i++) free(t->cells[i]);
    free(t->cells);
    *t = (struct cli_table){0};
}
