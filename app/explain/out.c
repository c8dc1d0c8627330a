/* SPDX-License-Identifier: BSD-3-Clause */
#include "out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool first = true; /* nothing stands in this object or array yet */
static int depth;

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

/* It always looks like a real. */
static void real(double v)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	fputs(text, stdout);
	if (strpbrk(text, ".en") == NULL)
		fputs(".0", stdout);
}

static void value(char type, va_list *ap)
{
	const char *s;

	switch (type) {
	case 's':
		s = va_arg(*ap, const char *);
		quoted(s, strlen(s));
		break;
	case 'S':
		s = va_arg(*ap, const char *);
		quoted(s, va_arg(*ap, uint32_t));
		break;
	case 'u':
		printf("%u", va_arg(*ap, uint32_t));
		break;
	case 'U':
		printf("%" PRIu64, va_arg(*ap, uint64_t));
		break;
	case 'f':
		real(va_arg(*ap, double));
		break;
	case 'b':
		fputs(va_arg(*ap, int) ? "true" : "false", stdout);
		break;
	default: /* { [ */
		putchar(type);
		first = true;
		depth++;
	}
}

static void end(char bracket)
{
	putchar(bracket);
	first = --depth == 0;
	if (first)
		putchar('\n');
}

void ex_out(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	while (*fmt != '\0') {
		const size_t len = strcspn(fmt, " ");
		const char type = fmt[len - 1];

		if (type == '}' || type == ']') {
			end(type);
		} else {
			if (!first)
				putchar(',');
			first = false;
			if (len > 1)
				printf("\"%.*s\":", (int)len - 2, fmt);
			value(type, &ap);
		}
		fmt += len + (fmt[len] == ' ');
	}
	va_end(ap);
}
