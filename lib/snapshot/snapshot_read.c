/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file is read into memory, so that the checked data are the data used, whatever happens to the
 * file later.
 */
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

/* @return the length of the record before padding; 0: invalid. */
static uint64_t record_length(uint32_t kind, const void *p, uint32_t bytes)
{
	const struct kvr_snap_session *session = p;
	const struct kvr_snap_worker *worker = p;
	const struct kvr_snap_piece *piece = p;

	switch (kind) {
	case KVR_SNAP_PIECE:
		return bytes < sizeof(*piece) || piece->n == 0 || piece->n > KVR_SNAP_MAX_PIECE ||
				       piece->n_owners == 0 || piece->n_owners > KVR_SNAP_MAX_OWNERS
			       ? 0
			       : sizeof(*piece) + piece->n * sizeof(uint64_t) +
					 piece->n_owners * sizeof(struct kvr_snap_owner);
	case KVR_SNAP_SESSION:
		return bytes < sizeof(*session) || session->id_len == 0 ||
				       session->id_len > KVR_SNAP_MAX_ID
			       ? 0
			       : sizeof(*session) + session->id_len;
	case KVR_SNAP_LIVE:
		return sizeof(struct kvr_snap_live);
	case KVR_SNAP_WORKER:
		return bytes < sizeof(*worker) || worker->dp_size == 0 ||
				       worker->dp_size > KVR_SNAP_MAX_RANKS
			       ? 0
			       : sizeof(*worker) + worker->dp_size * sizeof(struct kvr_snap_rank);
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

bool kvr_snap_next(const struct kvr_snap *snap, uint64_t *pos, struct kvr_snap_record *out)
{
	const struct snap_record *record;

	if (*pos == 0)
		*pos = sizeof(struct snap_head);
	if (*pos >= snap->bytes)
		return false;
	record = (const void *)(snap->data + *pos);
	out->kind = (enum kvr_snap_kind)record->kind;
	out->fixed = record + 1;
	out->more = (const uint8_t *)(record + 1) + fixed_length(record->kind);
	*pos += sizeof(*record) + record->bytes;
	return true;
}

static bool check_owners(const struct kvr_snap_piece *piece)
{
	const struct kvr_snap_owner *owner = kvr_snap_owners(piece);

	for (uint32_t i = 0; i < piece->n_owners; i++)
		if (owner[i].rank >= KVR_SNAP_MAX_OWNERS || owner[i].n == 0 ||
		    owner[i].n > piece->n)
			return false;
	return true;
}

static int check_records(const struct kvr_snap *snap, uint64_t count, char *why, size_t len)
{
	uint64_t pos = sizeof(struct snap_head), n = 0;

	for (; snap->bytes - pos >= sizeof(struct snap_record); n++) {
		const struct snap_record *record = (const void *)(snap->data + pos);
		uint64_t need;

		if (record->bytes % 8 != 0 || record->bytes > snap->bytes - pos - sizeof(*record))
			break;
		need = record_length(record->kind, record + 1, record->bytes);
		if (need == 0 || ((need + 7) & ~UINT64_C(7)) != record->bytes ||
		    (record->kind == KVR_SNAP_PIECE && !check_owners((const void *)(record + 1))))
			break;
		pos += sizeof(*record) + record->bytes;
	}
	if (pos == snap->bytes && n == count)
		return 0;
	snprintf(why, len, "record %llu is invalid", (unsigned long long)n);
	return -EBADMSG;
}

/* @return the length of the file, or -errno. */
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

/* The version is checked before completeness: another version may have another tail. */
static int check_head(const struct snap_head *head, uint64_t n, char *why, size_t len)
{
	if (n < sizeof(*head) || head->magic != SNAP_MAGIC) {
		snprintf(why, len, "not a snapshot");
		return -EBADMSG;
	}
	if (head->version != KVR_SNAP_VERSION || head->bytes != sizeof(*head)) {
		snprintf(why, len, "version %u, expected %u", head->version, KVR_SNAP_VERSION);
		return -ENOTSUP;
	}
	return 0;
}

static int check_tail(const struct kvr_snap *snap, uint64_t n, struct snap_tail *tail, char *why,
		      size_t len)
{
	if (n >= sizeof(struct snap_head) + sizeof(*tail))
		memcpy(tail, snap->data + n - sizeof(*tail), sizeof(*tail));
	if (tail->magic != SNAP_END || tail->bytes != n - sizeof(*tail)) {
		snprintf(why, len, "truncated: the tail is missing");
		return -EBADMSG;
	}
	if (XXH3_64bits(snap->data, tail->bytes) != tail->digest) {
		snprintf(why, len, "wrong checksum");
		return -EBADMSG;
	}
	return 0;
}

static int check_file(struct kvr_snap *snap, const struct kvr_snap_shape *shape, uint64_t n,
		      char *why, size_t len)
{
	const struct snap_head *head = (const void *)snap->data;
	struct snap_tail tail = {0};
	int rc = check_head(head, n, why, len);

	if (rc == 0)
		rc = check_tail(snap, n, &tail, why, len);
	if (rc < 0)
		return rc;
	if (head->shape.hash != shape->hash || head->shape.pools != shape->pools) {
		snprintf(why, len, "written for %s",
			 head->shape.hash != shape->hash ? "another block hash"
							 : "other pools or block sizes");
		return -EXDEV;
	}
	snap->bytes = tail.bytes;
	snap->about = (struct kvr_snap_about){head->made_ms, head->secret, head->epoch};
	return check_records(snap, tail.records, why, len);
}

int kvr_snap_load(const char *path, const struct kvr_snap_shape *shape, uint64_t max_bytes,
		  const struct kvr_snap_os *os, struct kvr_snap **out, char *why, size_t whylen)
{
	struct kvr_snap *snap;
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
	snap = calloc(1, sizeof(*snap));
	n = snap != NULL ? read_all(fd, os, max_bytes, &snap->data) : -ENOMEM;
	close(fd);
	if (n < 0) {
		rc = (int)n;
		snprintf(why, whylen, "%s", rc == -EBADMSG ? "not a regular file" : strerror(-rc));
	} else {
		rc = check_file(snap, shape, (uint64_t)n, why, whylen);
	}
	if (rc < 0) {
		kvr_snap_free(snap);
		return rc;
	}
	*out = snap;
	return 0;
}

const struct kvr_snap_about *kvr_snap_about(const struct kvr_snap *snap)
{
	return &snap->about;
}

uint64_t kvr_snap_bytes(const struct kvr_snap *snap)
{
	return snap->bytes + sizeof(struct snap_tail);
}

void kvr_snap_free(struct kvr_snap *snap)
{
	if (snap == NULL)
		return;
	free(snap->data);
	free(snap);
}
