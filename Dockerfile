# The README's way, in a container: docker build -t halobench .
FROM python:3.11
WORKDIR /halobench
COPY . .
RUN make env
ENTRYPOINT [".venv/bin/halobench"]
