# The README's way, in a container: docker build -t halobench .
FROM python:3.11
RUN useradd --create-home halobench && install -d -o halobench -g halobench /halobench
USER halobench
WORKDIR /halobench
COPY --chown=halobench:halobench . .
RUN make env
ENTRYPOINT [".venv/bin/halobench"]
