/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sc_out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void put_quoted(FILE *to, const char *s, size_t len)
{
	putc('"', to);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(to, "\\u%04x", c);
		else
			putc(c, to);
	}
	putc('"', to);
}

/* Write a number that always reads back as a real. */
static void put_real(FILE *to, double v)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	fputs(text, to);
	if (strpbrk(text, ".en") == NULL)
		fputs(".0", to);
}

static void put_value(struct kvr_sc_out *o, char type, va_list *ap)
{
	const char *s;

	switch (type) {
	case 's':
		s = va_arg(*ap, const char *);
		put_quoted(o->to, s, strlen(s));
		break;
	case 'S':
		s = va_arg(*ap, const char *);
		put_quoted(o->to, s, va_arg(*ap, uint32_t));
		break;
	case 'u':
		fprintf(o->to, "%u", va_arg(*ap, uint32_t));
		break;
	case 'U':
		fprintf(o->to, "%" PRIu64, va_arg(*ap, uint64_t));
		break;
	case 'f':
		put_real(o->to, va_arg(*ap, double));
		break;
	case 'b':
		fputs(va_arg(*ap, int) ? "true" : "false", o->to);
		break;
	default: /* { [ */
		putc(type, o->to);
		o->some = false;
		o->depth++;
	}
}

static void end_member(struct kvr_sc_out *o, char bracket)
{
	putc(bracket, o->to);
	o->some = --o->depth != 0;
	if (!o->some)
		putc('\n', o->to);
}

void kvr_sc_out(struct kvr_sc_out *o, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	while (*fmt != '\0') {
		const size_t len = strcspn(fmt, " ");
		const char type = fmt[len - 1];

		if (type == '}' || type == ']') {
			end_member(o, type);
		} else {
			if (o->some)
				putc(',', o->to);
			o->some = true;
			if (len > 1)
				fprintf(o->to, "\"%.*s\":", (int)len - 2, fmt);
			put_value(o, type, &ap);
		}
		fmt += len + (fmt[len] == ' ');
	}
	va_end(ap);
}
