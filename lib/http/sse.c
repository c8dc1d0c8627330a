/* SPDX-License-Identifier: BSD-3-Clause */
/* A line ends with CR, LF or both; an empty line ends the event. */
#include "kvr_sse.h"

#include <string.h>

void kvr_sse_init(struct kvr_sse *sse, char *buf, uint32_t size)
{
	*sse = (struct kvr_sse){.buf = buf, .size = size};
}

void kvr_sse_grows(struct kvr_sse *sse, kvr_sse_grow_fn *grow, void *arg)
{
	sse->grow = grow;
	sse->grow_arg = arg;
}

static void grow_buffer(struct kvr_sse *sse, size_t n)
{
	uint32_t size = (uint32_t)(sse->len + n);
	char *larger = n <= UINT32_MAX - sse->len ? sse->grow(sse->grow_arg, &size) : NULL;

	if (larger == NULL)
		return;
	sse->buf = larger;
	sse->size = size;
}

static void keep_bytes(struct kvr_sse *sse, const char *p, size_t n)
{
	size_t room;

	if (n > sse->size - sse->len && sse->grow != NULL && !sse->cut)
		grow_buffer(sse, n);
	room = sse->size - sse->len;
	if (n > room) {
		sse->cut = true;
		n = room;
	}
	if (n > 0)
		memcpy(sse->buf + sse->len, p, n);
	sse->len += (uint32_t)n;
}

static void start_line(struct kvr_sse *sse)
{
	sse->line = 0;
	sse->is_data = sse->colon = sse->space = false;
}

static void end_line(struct kvr_sse *sse, kvr_sse_fn *fn, void *arg)
{
	if (sse->line == 0) {
		if (sse->some)
			fn(arg, sse->buf, sse->len - (sse->len > 0 && !sse->cut), sse->cut);
		sse->len = 0;
		sse->some = sse->cut = false;
	} else if (sse->is_data ||
		   (!sse->colon && sse->line == 4 && memcmp(sse->field, "data", 4) == 0)) {
		sse->some = true;
		keep_bytes(sse, "\n", 1);
	}
	start_line(sse);
}

/* Read one byte of a line's field name. */
static void name_byte(struct kvr_sse *sse, char c)
{
	if (c == ':') {
		sse->colon = true;
		sse->is_data = sse->line == 4 && memcmp(sse->field, "data", 4) == 0;
	} else if (sse->line < sizeof(sse->field)) {
		sse->field[sse->line] = c;
	}
	sse->line += sse->line < UINT32_MAX;
}

/* Read the bytes of this line after the colon. @return their number. */
static size_t value_bytes(struct kvr_sse *sse, const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && p[k] != '\n' && p[k] != '\r')
		k++;
	if (k > 0 && !sse->space) {
		sse->space = true; /* one blank after the colon is not part of the value */
		if (sse->is_data)
			keep_bytes(sse, p + (p[0] == ' '), k - (p[0] == ' '));
	} else if (sse->is_data) {
		keep_bytes(sse, p, k);
	}
	return k;
}

void kvr_sse_add(struct kvr_sse *sse, const void *data, size_t len, kvr_sse_fn *fn, void *arg)
{
	const char *p = data, *end = p + len;

	while (p < end) {
		if (*p == '\n' && sse->cr) {
			sse->cr = false;
			p++;
		} else if (*p == '\n' || *p == '\r') {
			sse->cr = *p == '\r';
			p++;
			end_line(sse, fn, arg);
		} else if (sse->colon) {
			sse->cr = false;
			p += value_bytes(sse, p, (size_t)(end - p));
		} else {
			sse->cr = false;
			name_byte(sse, *p++);
		}
	}
}

bool kvr_sse_open(const struct kvr_sse *sse)
{
	return sse->some || sse->line > 0;
}
