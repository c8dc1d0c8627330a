/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes every sample frame into a capture: Ethernet (every third with a VLAN tag), IPv4 and IPv6
 * in turn, UDP; then each one with its last 8 bytes missing. Prints one line per good frame: what
 * the dissector must say about its header.
 */
#include "samples.h"

#include <stdio.h>
#include <string.h>

static struct sample samples[SAMPLES_MAX];

static uint32_t put_be16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return 2;
}

static uint32_t put_ether(uint8_t *p, bool vlan, uint32_t type)
{
	uint32_t n = 12;

	memset(p, 2, 12);
	if (vlan) {
		n += put_be16(p + n, 0x8100);
		n += put_be16(p + n, 7);
	}
	return n + put_be16(p + n, type);
}

static uint32_t put_ip(uint8_t *p, bool v6, uint32_t udp_len)
{
	const uint32_t n = v6 ? 40 : 20;

	memset(p, 0, n);
	if (v6) {
		p[0] = 0x60;
		put_be16(p + 4, udp_len);
		p[6] = 17;
		p[7] = 64;
		p[8] = p[24] = 0xfd;
		p[23] = 1;
		p[39] = 2;
		return n;
	}
	p[0] = 0x45;
	put_be16(p + 2, n + udp_len);
	p[8] = 64;
	p[9] = 17;
	memcpy(p + 12, (uint8_t[]){192, 0, 2, 9, 192, 0, 2, 1}, 8);
	return n;
}

static bool write_packet(FILE *f, uint32_t no, const struct sample *s, uint32_t i, uint32_t cut)
{
	const uint32_t len = s->len[i] - cut;
	uint8_t pkt[64 + 48 + SAMPLE_FRAME];
	uint32_t rec[4] = {no, 0, 0, 0}, n;
	const bool v6 = no % 2 == 1;

	n = put_ether(pkt, no % 3 == 0, v6 ? 0x86dd : 0x0800);
	n += put_ip(pkt + n, v6, len + 8);
	/* towards the router on its port, else from it; one sample in four on foreign ports */
	n += put_be16(pkt + n, s->receiver == KVR_ROLE_BIT_ROUTER ? 40000 : 7650);
	n += put_be16(pkt + n, s->receiver == KVR_ROLE_BIT_ROUTER ? 7650 : 40000);
	if (no % 4 == 0 && cut == 0) {
		put_be16(pkt + n - 4, 40001);
		put_be16(pkt + n - 2, 40002);
	}
	n += put_be16(pkt + n, len + 8);
	n += put_be16(pkt + n, 0);
	memcpy(pkt + n, s->frame[i], len);
	n += len;
	rec[2] = rec[3] = n;
	return fwrite(rec, sizeof(rec), 1, f) == 1 && fwrite(pkt, n, 1, f) == 1;
}

int main(int argc, char **argv)
{
	static const uint32_t head[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
	const uint32_t n = samples_make(samples);
	uint32_t no = 1;
	FILE *f;

	if (argc != 2 || (f = fopen(argv[1], "wb")) == NULL)
		return 2;
	if (fwrite(head, sizeof(head), 1, f) != 1)
		return 1;
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t k = 0; k < n; k++)
			for (uint32_t i = 0; i < samples[k].n_frames; i++, no++) {
				const struct kvr_wire_hdr *h = (const void *)samples[k].frame[i];

				if (!write_packet(f, no, &samples[k], i, pass == 0 ? 0 : 8))
					return 1;
				if (pass == 0)
					printf("%u,%u,0x%016lx,%lu,%u,%u,kvroute %s\n", no, h->kind,
					       h->source, h->id, h->msg_len, h->frag_off,
					       kvr_wire_kind_name(h->kind));
			}
	return fclose(f) == 0 ? 0 : 1;
}
