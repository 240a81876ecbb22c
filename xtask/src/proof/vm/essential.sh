#!/bin/sh
# Before the packages are installed: what the kernel package's own hook then reads. The root disk is all that the
# initial file system must find; everything else is loaded from there.
set -eu
etc=$1/etc/initramfs-tools
mkdir -p "$etc/conf.d" "$etc/hooks"
printf 'MODULES=list\nCOMPRESS=gzip\n' > "$etc/conf.d/proof"
cat > "$etc/hooks/proof" <<'HOOK'
#!/bin/sh
case "${1-}" in prereqs) exit 0 ;; esac
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4
HOOK
chmod 755 "$etc/hooks/proof"
