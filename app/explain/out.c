/* SPDX-License-Identifier: BSD-3-Clause */
#include "out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool first;

static void quoted(const char *s, size_t len)
{
	putchar('"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void comma(const char *key)
{
	if (!first)
		putchar(',');
	first = false;
	if (key != NULL) {
		quoted(key, strlen(key));
		putchar(':');
	}
}

void ex_out_line(const char *op)
{
	putchar('{');
	first = true;
	ex_out_str("op", op);
}

void ex_out_strn(const char *key, const char *v, size_t len)
{
	comma(key);
	quoted(v, len);
}

void ex_out_str(const char *key, const char *v)
{
	ex_out_strn(key, v, strlen(v));
}

void ex_out_u64(const char *key, uint64_t v)
{
	comma(key);
	printf("%" PRIu64, v);
}

void ex_out_item(uint64_t v)
{
	ex_out_u64(NULL, v);
}

void ex_out_f64(const char *key, double v)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	if (strpbrk(text, ".en") == NULL)
		strcat(text, ".0");
	comma(key);
	fputs(text, stdout);
}

void ex_out_bool(const char *key, bool v)
{
	comma(key);
	fputs(v ? "true" : "false", stdout);
}

void ex_out_open(const char *key, char bracket)
{
	comma(key);
	putchar(bracket);
	first = true;
}

void ex_out_close(char bracket)
{
	putchar(bracket);
	first = false;
}

void ex_out_end(void)
{
	fputs("}\n", stdout);
}
