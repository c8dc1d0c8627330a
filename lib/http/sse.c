/* SPDX-License-Identifier: BSD-3-Clause */
/* A line ends with CR, LF or both; an empty one ends the event. */
#include "kvr_sse.h"

#include <string.h>

void kvr_sse_init(struct kvr_sse *s, char *buf, uint32_t size)
{
	*s = (struct kvr_sse){.buf = buf, .size = size};
}

void kvr_sse_grows(struct kvr_sse *s, kvr_sse_grow_fn *grow, void *arg)
{
	s->grow = grow;
	s->grow_arg = arg;
}

static void grow(struct kvr_sse *s, size_t n)
{
	uint32_t size = (uint32_t)(s->len + n);
	char *larger = n <= UINT32_MAX - s->len ? s->grow(s->grow_arg, &size) : NULL;

	if (larger == NULL)
		return;
	s->buf = larger;
	s->size = size;
}

static void keep(struct kvr_sse *s, const char *p, size_t n)
{
	size_t room;

	if (n > s->size - s->len && s->grow != NULL && !s->cut)
		grow(s, n);
	room = s->size - s->len;
	if (n > room) {
		s->cut = true;
		n = room;
	}
	if (n > 0)
		memcpy(s->buf + s->len, p, n);
	s->len += (uint32_t)n;
}

static void start_line(struct kvr_sse *s)
{
	s->line = 0;
	s->is_data = s->colon = s->space = false;
}

static void end_line(struct kvr_sse *s, kvr_sse_fn *fn, void *arg)
{
	if (s->line == 0) {
		if (s->some)
			fn(arg, s->buf, s->len - (s->len > 0 && !s->cut), s->cut);
		s->len = 0;
		s->some = s->cut = false;
	} else if (s->is_data || (!s->colon && s->line == 4 && memcmp(s->field, "data", 4) == 0)) {
		s->some = true;
		keep(s, "\n", 1);
	}
	start_line(s);
}

/* One byte of the name of a line's field. */
static void name_byte(struct kvr_sse *s, char c)
{
	if (c == ':') {
		s->colon = true;
		s->is_data = s->line == 4 && memcmp(s->field, "data", 4) == 0;
	} else if (s->line < sizeof(s->field)) {
		s->field[s->line] = c;
	}
	s->line += s->line < UINT32_MAX;
}

/* The run of bytes of this line behind the colon. @return its length. */
static size_t value_bytes(struct kvr_sse *s, const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && p[k] != '\n' && p[k] != '\r')
		k++;
	if (k > 0 && !s->space) {
		s->space = true; /* one blank behind the colon is not meant */
		if (s->is_data)
			keep(s, p + (p[0] == ' '), k - (p[0] == ' '));
	} else if (s->is_data) {
		keep(s, p, k);
	}
	return k;
}

void kvr_sse_add(struct kvr_sse *s, const void *data, size_t len, kvr_sse_fn *fn, void *arg)
{
	const char *p = data, *end = p + len;

	while (p < end) {
		if (*p == '\n' && s->cr) {
			s->cr = false;
			p++;
		} else if (*p == '\n' || *p == '\r') {
			s->cr = *p == '\r';
			p++;
			end_line(s, fn, arg);
		} else if (s->colon) {
			s->cr = false;
			p += value_bytes(s, p, (size_t)(end - p));
		} else {
			s->cr = false;
			name_byte(s, *p++);
		}
	}
}

bool kvr_sse_open(const struct kvr_sse *s)
{
	return s->some || s->line > 0;
}
