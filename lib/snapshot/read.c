/* SPDX-License-Identifier: BSD-3-Clause */
/* The file is read into memory: what is checked is what is used, whatever happens to it later. */
#include "snapshot_pvt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

struct kvr_snap {
	struct kvr_snap_about about;
	uint64_t bytes; /* before the tail */
	uint8_t *data;
};

/* @return bytes that the record must have before it is filled up; 0: it is none. */
static uint64_t length_of(uint32_t kind, const void *p, uint32_t bytes)
{
	const struct kvr_snap_session *s = p;
	const struct kvr_snap_worker *w = p;
	const struct kvr_snap_piece *d = p;

	switch (kind) {
	case KVR_SNAP_PIECE:
		return bytes < sizeof(*d) || d->n == 0 || d->n > KVR_SNAP_MAX_PIECE ||
				       d->n_owners == 0 || d->n_owners > KVR_SNAP_MAX_OWNERS
			       ? 0
			       : sizeof(*d) + d->n * sizeof(uint64_t) +
					 d->n_owners * sizeof(struct kvr_snap_owner);
	case KVR_SNAP_SESSION:
		return bytes < sizeof(*s) || s->id_len == 0 || s->id_len > KVR_SNAP_MAX_ID
			       ? 0
			       : sizeof(*s) + s->id_len;
	case KVR_SNAP_LIVE:
		return sizeof(struct kvr_snap_live);
	case KVR_SNAP_WORKER:
		return bytes < sizeof(*w) || w->dp_size == 0 || w->dp_size > KVR_SNAP_MAX_RANKS
			       ? 0
			       : sizeof(*w) + w->dp_size * sizeof(struct kvr_snap_rank);
	default:
		return 0;
	}
}

static size_t fixed_length(uint32_t kind)
{
	switch (kind) {
	case KVR_SNAP_PIECE:
		return sizeof(struct kvr_snap_piece);
	case KVR_SNAP_SESSION:
		return sizeof(struct kvr_snap_session);
	case KVR_SNAP_LIVE:
		return sizeof(struct kvr_snap_live);
	default:
		return sizeof(struct kvr_snap_worker);
	}
}

bool kvr_snap_next(const struct kvr_snap *s, uint64_t *pos, struct kvr_snap_record *out)
{
	const struct snap_record *r;

	if (*pos == 0)
		*pos = sizeof(struct snap_head);
	if (*pos >= s->bytes)
		return false;
	r = (const void *)(s->data + *pos);
	out->kind = (enum kvr_snap_kind)r->kind;
	out->fixed = r + 1;
	out->more = (const uint8_t *)(r + 1) + fixed_length(r->kind);
	*pos += sizeof(*r) + r->bytes;
	return true;
}

static bool owners_ok(const struct kvr_snap_piece *p)
{
	const struct kvr_snap_owner *o = kvr_snap_owners(p);

	for (uint32_t i = 0; i < p->n_owners; i++)
		if (o[i].rank >= KVR_SNAP_MAX_OWNERS || o[i].n == 0 || o[i].n > p->n)
			return false;
	return true;
}

static int records_ok(const struct kvr_snap *s, uint64_t count, char *why, size_t len)
{
	uint64_t pos = sizeof(struct snap_head), n = 0;

	for (; s->bytes - pos >= sizeof(struct snap_record); n++) {
		const struct snap_record *r = (const void *)(s->data + pos);
		uint64_t need;

		if (r->bytes % 8 != 0 || r->bytes > s->bytes - pos - sizeof(*r))
			break;
		need = length_of(r->kind, r + 1, r->bytes);
		if (need == 0 || ((need + 7) & ~UINT64_C(7)) != r->bytes ||
		    (r->kind == KVR_SNAP_PIECE && !owners_ok((const void *)(r + 1))))
			break;
		pos += sizeof(*r) + r->bytes;
	}
	if (pos == s->bytes && n == count)
		return 0;
	snprintf(why, len, "record %llu is none", (unsigned long long)n);
	return -EBADMSG;
}

/* @return length of the file, or -errno. */
static int64_t read_all(int fd, const struct kvr_snap_os *os, uint64_t max, uint8_t **out)
{
	struct stat st;
	uint64_t n = 0;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	*out = malloc((size_t)st.st_size + 1);
	if (*out == NULL)
		return -ENOMEM;
	while (n < (uint64_t)st.st_size) {
		const ssize_t got = os->read(fd, *out + n, (size_t)st.st_size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (uint64_t)got;
	}
	return (int64_t)n;
}

/* Whose it is comes before whether it is whole: another version may end otherwise. */
static int head_ok(const struct snap_head *h, uint64_t n, char *why, size_t len)
{
	if (n < sizeof(*h) || h->magic != SNAP_MAGIC) {
		snprintf(why, len, "it is no snapshot");
		return -EBADMSG;
	}
	if (h->version != KVR_SNAP_VERSION || h->bytes != sizeof(*h)) {
		snprintf(why, len, "it is of version %u, read is %u", h->version, KVR_SNAP_VERSION);
		return -ENOTSUP;
	}
	return 0;
}

static int whole(const struct kvr_snap *s, uint64_t n, struct snap_tail *tail, char *why,
		 size_t len)
{
	if (n >= sizeof(struct snap_head) + sizeof(*tail))
		memcpy(tail, s->data + n - sizeof(*tail), sizeof(*tail));
	if (tail->magic != SNAP_END || tail->bytes != n - sizeof(*tail)) {
		snprintf(why, len, "its end is missing");
		return -EBADMSG;
	}
	if (XXH3_64bits(s->data, tail->bytes) != tail->digest) {
		snprintf(why, len, "its checksum is wrong");
		return -EBADMSG;
	}
	return 0;
}

static int check(struct kvr_snap *s, const struct kvr_snap_shape *shape, uint64_t n, char *why,
		 size_t len)
{
	const struct snap_head *h = (const void *)s->data;
	struct snap_tail tail = {0};
	int rc = head_ok(h, n, why, len);

	if (rc == 0)
		rc = whole(s, n, &tail, why, len);
	if (rc < 0)
		return rc;
	if (h->shape.hash != shape->hash || h->shape.pools != shape->pools) {
		snprintf(why, len, "it is of %s",
			 h->shape.hash != shape->hash ? "another way to hash blocks"
						      : "other pools or block sizes");
		return -EXDEV;
	}
	s->bytes = tail.bytes;
	s->about = (struct kvr_snap_about){h->made_ms, h->secret, h->epoch};
	return records_ok(s, tail.records, why, len);
}

int kvr_snap_load(const char *path, const struct kvr_snap_shape *shape, uint64_t max_bytes,
		  const struct kvr_snap_os *os, struct kvr_snap **out, char *why, size_t whylen)
{
	struct kvr_snap *s;
	int64_t n;
	int fd, rc;

	if (os == NULL)
		os = &kvr_snap_os;
	fd = os->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0) {
		rc = -errno;
		snprintf(why, whylen, "%s", strerror(-rc));
		return rc;
	}
	s = calloc(1, sizeof(*s));
	n = s != NULL ? read_all(fd, os, max_bytes, &s->data) : -ENOMEM;
	close(fd);
	if (n < 0) {
		rc = (int)n;
		snprintf(why, whylen, "%s", rc == -EBADMSG ? "it is no file" : strerror(-rc));
	} else {
		rc = check(s, shape, (uint64_t)n, why, whylen);
	}
	if (rc < 0) {
		kvr_snap_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

const struct kvr_snap_about *kvr_snap_about(const struct kvr_snap *s)
{
	return &s->about;
}

uint64_t kvr_snap_bytes(const struct kvr_snap *s)
{
	return s->bytes + sizeof(struct snap_tail);
}

void kvr_snap_free(struct kvr_snap *s)
{
	if (s == NULL)
		return;
	free(s->data);
	free(s);
}
