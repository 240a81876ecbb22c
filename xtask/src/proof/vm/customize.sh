#!/bin/sh
# After the packages are installed: an ordinary user with a range of ids, the disk that carries the proof, and a unit
# that runs it and then switches the machine off.
set -eu
root=$1
chroot "$root" useradd --create-home --shell /bin/bash tester
mkdir -p "$root/proof"
echo cosm-v2 > "$root/etc/hostname"
cat > "$root/etc/fstab" <<'FSTAB'
/dev/vda /      ext4 rw,noatime 0 0
/dev/vdb /proof ext4 ro         0 0
FSTAB
units=$root/etc/systemd/system
cat > "$units/proof.service" <<'UNIT'
[Unit]
Description=The proof
Wants=dbus.service systemd-logind.service
After=local-fs.target dbus.service systemd-logind.service systemd-user-sessions.service

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /proof/proof.py
StandardOutput=file:/dev/ttyS1
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block poweroff
UNIT
mkdir -p "$units/multi-user.target.wants"
ln -s ../proof.service "$units/multi-user.target.wants/proof.service"
# Nobody logs in at a console, and nothing here lives long enough for a timer.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-timesyncd.service getty@tty1.service serial-getty@ttyS0.service; do
    ln -sf /dev/null "$units/$unit"
done
mv "$root"/boot/vmlinuz-* "$root/vmlinuz"
mv "$root"/boot/initrd.img-* "$root/initrd"
