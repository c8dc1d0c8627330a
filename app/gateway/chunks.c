/* SPDX-License-Identifier: BSD-3-Clause */
#include "chunks.h"

#include <stdbool.h>
#include <string.h>

#define MOST_DIGITS 15 /* of a length: it fits 60 bits */

enum state {
	SIZE,	   /* digits of a length */
	EXTENSION, /* behind a semicolon */
	DATA,	   /* libh2o knows this number */
	DATA_CR,   /* behind the data */
	DATA_LF,
	BLANK, /* between the length and a semicolon, or the end */
	SIZE_LF,
	TRAILER, /* at the beginning of a line */
	FIELD,	 /* within one */
	FIELD_LF,
	END_LF, /* of the line that has nothing */
	END,
	WRONG,
};

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static bool is_text(char c)
{
	return ((unsigned char)c >= ' ' && c != 0x7f) || c == '\t';
}

static enum state in_size(struct phr_chunked_decoder *d, char c)
{
	const int v = hex_digit(c);

	if (v >= 0 && d->_hex_count < MOST_DIGITS) {
		d->bytes_left_in_chunk = d->bytes_left_in_chunk * 16 + (size_t)v;
		d->_hex_count++;
		return SIZE;
	}
	if (v >= 0 || d->_hex_count == 0)
		return WRONG;
	return c == '\r' ? SIZE_LF : c == ';' ? EXTENSION : c == ' ' || c == '\t' ? BLANK : WRONG;
}

static enum state behind_size(struct phr_chunked_decoder *d)
{
	d->_hex_count = 0;
	return d->bytes_left_in_chunk > 0 ? DATA : d->consume_trailer ? TRAILER : END;
}

/* The state behind @p c, which is no data. */
static enum state next_state(struct phr_chunked_decoder *d, char c)
{
	switch ((enum state)d->_state) {
	case SIZE:
		return in_size(d, c);
	case BLANK:
		return c == '\r'	       ? SIZE_LF
		       : c == ';'	       ? EXTENSION
		       : c == ' ' || c == '\t' ? BLANK
					       : WRONG;
	case EXTENSION:
		return c == '\r' ? SIZE_LF : is_text(c) ? EXTENSION : WRONG;
	case SIZE_LF:
		return c == '\n' ? behind_size(d) : WRONG;
	case DATA_CR:
		return c == '\r' ? DATA_LF : WRONG;
	case DATA_LF:
		return c == '\n' ? SIZE : WRONG;
	case TRAILER:
		return c == '\r' ? END_LF : is_text(c) ? FIELD : WRONG;
	case FIELD:
		return c == '\r' ? FIELD_LF : is_text(c) ? FIELD : WRONG;
	case FIELD_LF:
		return c == '\n' ? TRAILER : WRONG;
	case END_LF:
		return c == '\n' ? END : WRONG;
	default:
		return WRONG;
	}
}

ssize_t phr_decode_chunked(struct phr_chunked_decoder *d, char *buf, size_t *len)
{
	const size_t had = *len;
	size_t from = 0, to = 0;

	while (from < had && d->_state != END && d->_state != WRONG) {
		size_t n = had - from;

		if (d->_state != DATA) {
			d->_state = (char)next_state(d, buf[from++]);
			continue;
		}
		n = n < d->bytes_left_in_chunk ? n : d->bytes_left_in_chunk;
		memmove(buf + to, buf + from, n);
		from += n;
		to += n;
		d->bytes_left_in_chunk -= n;
		if (d->bytes_left_in_chunk == 0)
			d->_state = DATA_CR;
	}
	memmove(buf + to, buf + from, had - from);
	*len = to;
	return d->_state == END ? (ssize_t)(had - from) : d->_state == WRONG ? -1 : -2;
}
